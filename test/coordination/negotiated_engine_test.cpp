// Engines that negotiate, compared with the plain coordinator, and from one plan to the next.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "coordination/plain_coordinator.hpp"
#include "coordination/toy_world.hpp"
#include "support/extent.hpp"
#include "support/training.hpp"
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/coordination/negotiated.hpp"
#include "tutti/coordination/words.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/fusion/when_ready.hpp"
#include "tutti/monitor/timeline.hpp"
#include "tutti/transport/network.hpp"

namespace tutti::test {
namespace {

/// Negotiates as coordination::negotiated does, and records what an engine tells it and does with
/// it.
struct noted : coordination::negotiated {
  struct options : coordination::negotiated::options {
    toy_log* log{};
  };

  template <class Choice>
  class state : public coordination::negotiated::state<Choice> {
    using base = coordination::negotiated::state<Choice>;

   public:
    state(const plan& made, std::span<const tensor> forward, coordination::ranks all,
          const options& set, Choice choice)
        : base(made, forward, all, set, std::move(choice)), rank_(all.rank), log_(set.log) {}

    void ready(std::uint32_t bucket, seconds now) {
      log_->readied.push_back({now, rank_, bucket});
      base::ready(bucket, now);
    }
    void tick(seconds now) {
      if (const auto due = base::due(); due && *due <= now) {
        log_->ticks.push_back(now);
      }
      base::tick(now);
    }
    template <class Say>
    void speak(Say say) {
      base::speak([&](std::span<const std::uint32_t> words) {
        if (words.front() != coordination::words::left) {
          mine(log_->said).emplace_back(words.begin(), words.end());
        }
        say(words);
      });
    }
    template <class IsReady>
    std::optional<std::uint32_t> next(IsReady is_ready, std::size_t left) {
      const auto first = base::next(is_ready, left);
      if (first) {
        auto& launch = mine(log_->launches).emplace_back();
        for (auto chunk = *first; chunk != coordination::no_chunk; chunk = base::after(chunk)) {
          launch.push_back(chunk);
        }
      }
      return first;
    }

   private:
    template <class Each>
    Each& mine(std::vector<Each>& of_ranks) const {
      return of_ranks[static_cast<std::size_t>(rank_)];
    }

    int rank_;
    toy_log* log_;
  };
};

/// A rank's messages take as long as in the toy world; rank 0's messages take equally long to all
/// ranks.
constexpr delays over_links{toy_world::to_rank_0, [](int) { return toy_world::from_rank_0(0); }};

/// Returns what engines do over links that only delay. Ranks hand in tensors of three element
/// types, which are sent separately, in random orders and after random pauses.
toy_log trained_by_engines(job& of, const setting& set, int steps) {
  using strategy = compose<noted, fusion::when_ready, architecture::all_reduce<>>;
  std::mt19937 draw(set.seed);
  for (tensor& each : of.forward) {
    each.gradient_type = static_cast<element_type>(draw() % 3);
  }
  toy_log log;
  log.launches.resize(static_cast<std::size_t>(set.size));
  log.said.resize(log.launches.size());
  engine_options<strategy> options;
  options.fusion = {.bytes = set.threshold, .cycle = 1.0 / 8192, .types = fusion_types::apart};
  options.coordination.by = set.by;
  options.coordination.cache = set.cache;
  options.coordination.log = &log;
  const std::size_t tensors = of.forward.size();
  const auto rank = [&](transport::simulated& world) -> task {
    auto engine =
        make_engine<strategy>(world, of.forward, optimizer_of(), options,
                              monitor::timeline(8 * static_cast<std::size_t>(steps) * tensors));
    co_await engine.started();
    std::mt19937 random(set.seed + static_cast<unsigned>(world.rank()));
    for (int step = 0; step < steps; ++step) {
      for (const tensor_id id : shuffled(tensors, world.rank(), step)) {
        co_await engine.arrival(id);
        const double most = random() % 8 == 0 ? 2e-4 : 1e-5;
        co_await world.sleep(most * static_cast<double>(1 + random() % 999'983) / 1e6);
        engine.ready(id);
      }
    }
    for (std::size_t id = 0; id < tensors; ++id) {
      co_await engine.arrival(tensor_id(id));
    }
    std::vector<std::uint32_t> started;
    for (const auto& each : engine.observed().moments()) {
      if (each.what == event::started) {
        started.push_back(each.which);
      }
    }
    std::vector<std::uint32_t> decided;
    for (const auto& each : log.launches[static_cast<std::size_t>(world.rank())]) {
      decided.push_back(each.front());
    }
    EXPECT_EQ(engine.observed().missed(), 0U);
    EXPECT_TRUE(started == decided) << "rank " << world.rank() << " starts something else";
    of.made = engine.planned();
    co_await engine.close();
    log.ended = true;
  };
  constexpr double any = std::numeric_limits<double>::infinity();
  transport::network links(set.size, transport::link{any, over_links.from_rank_0(0)});
  for (int each = 1; each < set.size; ++each) {
    links.isolate(each, {any, over_links.to_rank_0(each)});
  }
  transport::run_simulated(std::move(links), rank);
  return log;
}

TEST(NegotiatedByEngines, LaunchesAndReportsAreThoseOfAPlainCoordinator) {
  for (const int size : {2, 3, 4, 5}) {
    const setting set{size,      40, coordination::identity::name, 2, static_cast<unsigned>(size),
                      over_links};
    job of(set.seed);
    const auto log = trained_by_engines(of, set, many_steps / 5);
    ASSERT_TRUE(log.ended);
    EXPECT_EQ(difference(of, set, log), "") << size << " ranks";
    EXPECT_NE(difference(of, set, log, slip::look_ahead_stops_at_the_limit), "");
    EXPECT_NE(difference(of, set, log, slip::a_launch_does_not_renew), "");
  }
}

/// The reports in each step, and rank 1's launches.
struct of_steps {
  std::vector<std::uint64_t> words{};  ///< that rank 1 sends besides the gradient
  std::vector<chunk_numbers> launched{};
  std::vector<std::vector<float>> parameters{};
};

/// Three ranks train by name, and before each step they change to buckets of so many bytes.
of_steps trained_over_plans(std::size_t cache, const std::vector<std::size_t>& bytes) {
  using strategy = compose<fusion::up_to, coordination::negotiated,
                           architecture::all_reduce<collective::canonical>>;
  constexpr int ranks = 3;
  of_steps made;
  made.parameters.resize(ranks);
  const auto rank = [&](transport::simulated& world) -> task {
    arena memory = model_of(world.rank());
    engine_options<strategy> set;
    set.coordination = {.by = coordination::identity::name, .cache = cache};
    set.fusion.bytes = bytes.front();
    auto engine =
        make_engine<strategy>(world, memory.tensors(), optimizer_of(), set, monitor::timeline());
    co_await engine.started();
    std::size_t seen = 0;
    for (std::size_t step = 0; step < bytes.size(); ++step) {
      if (set.fusion.bytes != bytes[step]) {
        set.fusion.bytes = bytes[step];
        task changing = engine.replanned(set);
        co_await changing;
      }
      const std::uint64_t before = engine.counted().bytes_sent;
      backward(memory, engine.worker(), static_cast<int>(step));
      for (std::size_t id = memory.tensors().size(); id-- > 0;) {
        engine.ready(tensor_id(id));
      }
      for (std::size_t id = 0; id < memory.tensors().size(); ++id) {
        co_await engine.arrival(tensor_id(id));
      }
      if (world.rank() == 1) {
        std::uint64_t gradient = 0;  // to owners, and from these to two others
        for (const chunk& each : engine.planned().chunks) {
          const std::size_t own = each.elements / 3 + (each.elements % 3 > 1 ? 1 : 0);
          gradient += 4 * (each.elements + own);
        }
        made.words.push_back(engine.counted().bytes_sent - before - gradient);
        auto& launched = made.launched.emplace_back();
        for (const auto& each : engine.observed().moments().subspan(seen)) {
          if (each.what == event::started) {
            launched.push_back(each.which);
          }
        }
        std::ranges::sort(launched);
        seen = engine.observed().moments().size();
      }
    }
    const auto parameters = memory.parameters();
    made.parameters[static_cast<std::size_t>(world.rank())].assign(parameters.begin(),
                                                                   parameters.end());
    co_await engine.close();
  };
  transport::run_simulated(ranks, transport::link{1.25e9, 50e-6}, rank);
  return made;
}

/// Horovod's invalidation: a bit of one plan means nothing under the next plan, in which buckets
/// have other first tensors, names and numbers. Names are then sent again, every chunk of the
/// current plan is launched once a step, and training gives the result that it gives without a
/// cache.
TEST(NegotiatedByEngines, AReplanForgetsWhatBitsStoodFor) {
  const std::vector<std::size_t> plans{100, 100, 100, 40'000, 40'000, 100, 100, 1, 1, 40'000};
  for (const std::size_t cache : {0u, 1u, 2u, 1024u}) {
    const of_steps made = trained_over_plans(cache, plans);
    for (const auto& each : made.parameters) {
      EXPECT_EQ(each, tutti::test::trained(3, static_cast<int>(plans.size()))) << cache;
    }
    for (std::size_t step = 0; step < plans.size(); ++step) {
      const of_steps fresh = trained_over_plans(cache, {plans[step]});
      EXPECT_EQ(made.launched[step], fresh.launched[0]) << "step " << step;
      if (step > 0 && plans[step] != plans[step - 1]) {
        EXPECT_EQ(made.words[step], fresh.words[0]) << "step " << step << ", cache " << cache;
      } else if (step > 0 && cache == 1024) {
        EXPECT_LT(made.words[step], fresh.words[0]) << "step " << step;
      }
    }
  }
}

}  // namespace
}  // namespace tutti::test
