// Negotiated launches against a coordinator written down plainly: sets and maps, fed with what
// became ready when, and with the ticks.
#include "tutti/coordination/negotiated.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <gtest/gtest.h>
#include <list>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordination/toy_world.hpp"
#include "support/extent.hpp"
#include "support/training.hpp"
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/fusion/when_ready.hpp"
#include "tutti/monitor/timeline.hpp"
#include "tutti/schedule/as_ready.hpp"

namespace tutti::test {
namespace {

/// A slip of the oracle's, to see that the comparison would find one.
enum class slip { none, look_ahead_stops_at_the_limit, a_launch_does_not_renew };

struct setting {
  int size;
  std::size_t threshold;
  coordination::identity by;
  std::size_t cache;
  unsigned seed;
};

/// What a rank tells: slots of what it remembers, and names of the rest.
struct report {
  std::set<std::uint32_t> slots{};
  std::vector<std::string> names{};
  friend bool operator==(const report&, const report&) = default;
};

/// Forgets what was launched longest ago.
class plain_cache {
 public:
  plain_cache(std::size_t most, slip planted) : most_(most), planted_(planted) {}

  void launch(std::uint32_t bucket) {
    if (slots.count(bucket) != 0) {
      if (planted_ != slip::a_launch_does_not_renew) {
        recent_.remove(bucket);
        recent_.push_front(bucket);
      }
      return;
    }
    if (most_ == 0) {
      return;
    }
    std::uint32_t slot = static_cast<std::uint32_t>(slots.size());
    if (slots.size() == most_) {
      slot = slots[recent_.back()];
      slots.erase(recent_.back());
      recent_.pop_back();
    }
    slots[bucket] = slot;
    recent_.push_front(bucket);
  }

  std::map<std::uint32_t, std::uint32_t> slots{};

 private:
  std::size_t most_;
  slip planted_;
  std::list<std::uint32_t> recent_{};
};

/// Rank 0 of a plan whose buckets are chunks.
class coordinator {
 public:
  std::vector<chunk_numbers> launches{};
  std::vector<std::vector<report>> reports;

  coordinator(const plan& made, const std::vector<tensor>& forward, const setting& set,
              const toy_log& log, slip planted)
      : reports(static_cast<std::size_t>(set.size)),
        plan_(&made),
        forward_(&forward),
        set_(set),
        planted_(planted),
        caches_(reports.size(), plain_cache(set.cache, planted)),
        gathering_(reports.size()),
        under_way_(reports.size()) {
    for (const auto& each : log.readied) {
      happens(each.when, [this, each] { ready(each.rank, each.bucket, each.when); });
    }
    for (const seconds tick : log.ticks) {
      happens(tick, [this, tick] { decide(tick); });
    }
    while (!events_.empty()) {
      const auto next = events_.begin();
      const auto act = next->second;
      events_.erase(next);
      act();
    }
  }

 private:
  void happens(seconds when, std::function<void()> act) { events_.emplace(when, std::move(act)); }

  void ready(int rank, std::uint32_t bucket, seconds when) {
    if (rank == 0) {
      report_of(0, bucket);
      return;
    }
    gathering_[static_cast<std::size_t>(rank)].push_back(bucket);
    if (under_way_[static_cast<std::size_t>(rank)].empty()) {
      send(rank, when);
    }
  }
  void send(int rank, seconds when) {
    const auto at = static_cast<std::size_t>(rank);
    under_way_[at].swap(gathering_[at]);
    auto& said = reports[at].emplace_back();
    std::map<std::uint32_t, std::uint32_t> known;
    std::vector<std::uint32_t> unknown;
    for (const std::uint32_t bucket : under_way_[at]) {
      if (const auto slot = caches_[at].slots.find(bucket); slot != caches_[at].slots.end()) {
        said.slots.insert(slot->second);
        known[slot->second] = bucket;
      } else {
        said.names.push_back((*forward_)[index(plan_->at(bucket))].name);
        unknown.push_back(bucket);
      }
    }
    if (set_.by == coordination::identity::name) {  // rank 0 reads bits first
      under_way_[at].clear();
      for (const auto& [slot, bucket] : known) {
        under_way_[at].push_back(bucket);
      }
      under_way_[at].insert(under_way_[at].end(), unknown.begin(), unknown.end());
    }
    happens(when + toy_world::to_rank_0(rank), [this, at, rank, when] {
      for (const std::uint32_t bucket : under_way_[at]) {
        report_of(rank, bucket);
      }
      under_way_[at].clear();
      if (!gathering_[at].empty()) {
        send(rank, when + toy_world::to_rank_0(rank));
      }
    });
  }

  void report_of(int rank, std::uint32_t bucket) {
    reported_[bucket].insert(rank);
    if (reported_[bucket].size() == static_cast<std::size_t>(set_.size)) {
      reported_.erase(bucket);
      responses_.push_back(bucket);
    }
  }

  std::size_t bytes(std::uint32_t chunk) const { return 4 * plan_->chunks[chunk].elements; }

  void decide(seconds when) {
    chunk_numbers launched;
    while (!responses_.empty()) {
      chunk_numbers fused{responses_.front()};
      std::size_t size = bytes(responses_.front());
      const auto kind = plan_->chunks[responses_.front()].kind;
      responses_.pop_front();
      std::deque<std::uint32_t> skipped;
      std::size_t skipped_size = 0;
      while (!responses_.empty()) {
        const std::uint32_t next = responses_.front();
        const bool matches = plan_->chunks[next].kind == kind;
        if (matches && size + bytes(next) <= set_.threshold) {
          size += bytes(next);
          fused.push_back(next);
        } else {
          skipped_size += bytes(next);
          const std::size_t all = size + skipped_size;
          if (!matches && planted_ == slip::look_ahead_stops_at_the_limit ? all >= set_.threshold
                                                                          : all > set_.threshold) {
            break;
          }
          skipped.push_back(next);
        }
        responses_.pop_front();
      }
      responses_.insert(responses_.begin(), skipped.begin(), skipped.end());
      std::sort(fused.begin(), fused.end());
      launched.insert(launched.end(), fused.begin(), fused.end());
      launches.push_back(fused);
    }
    for (int rank = 1; rank < set_.size; ++rank) {
      happens(when + toy_world::from_rank_0(rank), [this, rank, launched] {
        for (const std::uint32_t each : launched) {
          caches_[static_cast<std::size_t>(rank)].launch(each);
        }
      });
    }
  }

  const plan* plan_;
  const std::vector<tensor>* forward_;
  setting set_;
  slip planted_;
  std::vector<plain_cache> caches_;
  std::vector<std::vector<std::uint32_t>> gathering_;
  std::vector<std::vector<std::uint32_t>> under_way_;
  std::map<std::uint32_t, std::set<int>> reported_{};
  std::deque<std::uint32_t> responses_{};
  std::multimap<seconds, std::function<void()>> events_{};
};

/// A report's words, read by their description.
report read(const chunk_numbers& words) {
  report found;
  for (std::size_t i = 0; i < words.size();) {
    const std::uint32_t value = words[i] & 0x3fffffff;
    const std::uint32_t kind = words[i] >> 30;
    if (kind == 1) {
      for (std::uint32_t bit = 0; bit < 32 * value; ++bit) {
        if ((words[i + 2 + bit / 32] >> (bit % 32)) & 1) {
          found.slots.insert(bit);
        }
      }
      i += 2 + value;
    } else if (kind == 3) {
      std::string name;
      for (std::uint32_t letter = 0; letter < words[i + 1]; ++letter) {
        name += static_cast<char>((words[i + 2 + letter / 4] >> (8 * (letter % 4))) & 0xff);
      }
      found.names.push_back(name);
      i += 2 + (words[i + 1] + 3) / 4;
    } else {
      ADD_FAILURE() << "a word of kind " << kind;
      return found;
    }
  }
  return found;
}

struct job {
  std::vector<tensor> forward = toy_tensors(9);
  plan made = toy_plan(forward);
  explicit job(unsigned seed) {
    std::mt19937 random(seed);
    for (auto& each : made.chunks) {
      each.kind = static_cast<std::uint32_t>(random() % 3);
    }
  }
};

toy_log trained(const job& of, const setting& set, int steps) {
  using namespace coordination;
  return train(of.forward, of.made, set.size, steps,
               machines<negotiated, schedule::as_ready, fusion::when_ready>(
                   {set.by, set.cache}, {}, {.bytes = set.threshold, .cycle = 1.0 / 8192}),
               set.seed);
}

/// What differs from a coordinator with that slip.
std::string difference(const job& of, const setting& set, const toy_log& log,
                       slip planted = slip::none) {
  const coordinator plain(of.made, of.forward, set, log, planted);
  for (std::size_t rank = 0; rank < log.launches.size(); ++rank) {
    if (log.launches[rank] != plain.launches) {
      return "launches of rank " + std::to_string(rank);
    }
    if (rank == 0) {
      continue;
    }
    if (log.said[rank].size() != plain.reports[rank].size()) {
      return "reports of rank " + std::to_string(rank);
    }
    for (std::size_t i = 0; i < log.said[rank].size(); ++i) {
      if (set.by == coordination::identity::name
              ? read(log.said[rank][i]) != plain.reports[rank][i]
              : log.said[rank][i].size() !=
                    plain.reports[rank][i].names.size() + plain.reports[rank][i].slots.size()) {
        return "report " + std::to_string(i) + " of rank " + std::to_string(rank);
      }
    }
  }
  return "";
}

TEST(Negotiated, LaunchesWhatAPlainCoordinatorLaunches) {
  for (const int size : {1, 2, 3, 5}) {
    for (const std::size_t threshold : {std::size_t{40}, std::size_t{1} << 20}) {
      const setting set{size, threshold, coordination::identity::number, 0,
                        static_cast<unsigned>(size)};
      const job of(set.seed);
      const auto log = trained(of, set, threshold == 40 ? many_steps : 500);
      ASSERT_TRUE(log.ended);
      EXPECT_EQ(difference(of, set, log), "") << size << " ranks, " << threshold << " bytes";
      std::size_t several = 0;
      for (const auto& each : log.launches[0]) {
        several += each.size() > 1;
      }
      EXPECT_GT(several, 100U) << "hardly anything was gathered";
    }
  }
}

TEST(Negotiated, NamesAndBitsAreThoseOfAPlainCache) {
  for (const int size : {2, 3, 5}) {
    for (const std::size_t cache : {0u, 1u, 2u, 1024u}) {
      const setting set{size, 40, coordination::identity::name, cache,
                        7 + static_cast<unsigned>(size)};
      const job of(set.seed);
      const auto log = trained(of, set, size == 3 ? many_steps : many_steps / 10);
      ASSERT_TRUE(log.ended);
      EXPECT_EQ(difference(of, set, log), "") << size << " ranks, cache of " << cache;
      std::size_t names = 0;
      std::size_t bits = 0;
      for (const auto& each : log.said[1]) {
        names += read(each).names.size();
        bits += read(each).slots.size();
        if (cache == 1024 && read(each).names.empty()) {  // steady: one vector of a bit a bucket
          EXPECT_EQ(each.size(), 3U);
        }
      }
      EXPECT_EQ(cache != 0, bits > 0);
      EXPECT_EQ(cache == 1024, names == of.forward.size());
    }
  }
}

TEST(Negotiated, ASlipIsFound) {
  const setting numbers{3, 40, coordination::identity::number, 0, 3};
  const setting by_name{3, 40, coordination::identity::name, 2, 3};
  const job of(3);
  const auto told = trained(of, numbers, 1000);
  EXPECT_EQ(difference(of, numbers, told), "");
  EXPECT_EQ(difference(of, numbers, told, slip::look_ahead_stops_at_the_limit),
            "launches of rank 0");
  const auto named = trained(of, by_name, 1000);
  EXPECT_EQ(difference(of, by_name, named), "");
  EXPECT_NE(difference(of, by_name, named, slip::a_launch_does_not_renew), "");
}

/// What ranks said of each step, and what rank 1 launched in it.
struct of_steps {
  std::vector<std::uint64_t> words{};  ///< bytes of rank 1's, beside the gradient
  std::vector<chunk_numbers> launched{};
  std::vector<std::vector<float>> parameters{};
};

/// Three ranks train by name; before each step they go over to buckets of so many bytes.
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
        std::uint64_t gradient = 0;  // parts go to their owners, and from there to the two others
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

/// Horovod's invalidation: what a bit stood for under one plan means nothing under the next.
/// Buckets have other first tensors, names and numbers then; names are told again, every chunk of
/// the plan that holds is launched once a step, and training comes to what it does without any
/// cache.
TEST(Negotiated, AReplanForgetsWhatBitsStoodFor) {
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

/// One tick takes what became ready in its cycle; a step without news has none.
TEST(Negotiated, ACycleIsBegunByNewsAlone) {
  using choice = coordination::choice<schedule::as_ready, fusion::when_ready>;
  using state = coordination::negotiated::state<choice>;
  const auto forward = toy_tensors(4);
  const plan made = toy_plan(forward);
  const fusion::when_ready::options set{.bytes = 1 << 20, .cycle = 0.25};
  state only(made, forward, {0, 1}, {}, choice(made, {}, set));
  EXPECT_EQ(only.due(), std::nullopt);
  only.ready(2, 10);
  EXPECT_EQ(only.due(), 10.25);
  only.ready(0, 10.125);
  only.tick(10.2);  // too early: a sleeper may be woken for what was before
  EXPECT_EQ(only.due(), 10.25);
  const coordination::all_ready all_of_them;
  const std::size_t all = 1 << 20;
  EXPECT_EQ(only.next(all_of_them, all), std::nullopt);
  only.tick(10.3);  // late
  EXPECT_EQ(only.due(), std::nullopt);
  EXPECT_EQ(only.next(all_of_them, all), 0U);
  EXPECT_EQ(only.after(0), 2U);
  EXPECT_EQ(only.after(2), coordination::no_chunk);
  EXPECT_EQ(only.next(all_of_them, all), std::nullopt);
  only.released(0, 10.5);
  EXPECT_EQ(only.due(), std::nullopt);
  only.ready(1, 20.125);
  EXPECT_EQ(only.due(), 20.25) << "at whole cycles after the last";
}

/// What rank 0 says when a rank leaves, and others have reported.
TEST(Negotiated, WhoLeavesOthersWaitingIsNamed) {
  using choice = coordination::choice<schedule::as_ready, fusion::when_ready>;
  using state = coordination::negotiated::state<choice>;
  const auto forward = toy_tensors(7);
  const plan made = toy_plan(forward);
  const auto name = [&](std::size_t bucket) { return forward[index(made.at(bucket))].name; };
  const chunk_numbers left{0x3ffffffe};
  const auto said = [](auto act) {
    try {
      act();
    } catch (const communication_error& failed) {
      return std::string(failed.what());
    }
    return std::string();
  };
  const std::string fix =
      ". Fix: as many batches on every rank, or engine.join() where there are no more";
  state zero(made, forward, {0, 4}, {}, choice(made, {}, {}));
  for (const int rank : {1, 2, 3}) {  // all report one bucket: nobody waits for that
    zero.hear(rank, chunk_numbers{5}, 0);
  }
  zero.ready(5, 0);
  zero.hear(1, chunk_numbers{0, 2}, 0);
  zero.hear(2, chunk_numbers{2}, 0);
  zero.ready(2, 0);
  EXPECT_EQ(said([&] { zero.hear(3, left, 0); }), "rank 3 has left and others wait: " + name(0) +
                                                      " lacks rank 0 and rank 2 and rank 3; " +
                                                      name(2) + " lacks rank 3" + fix);

  state late(made, forward, {0, 4}, {}, choice(made, {}, {}));
  EXPECT_EQ(said([&] { late.hear(3, left, 0); }), "") << "nobody waits yet";
  EXPECT_FALSE(late.expects_words());
  EXPECT_EQ(said([&] { late.ready(1, 0); }), "rank 3 has left and others wait: " + name(1) +
                                                 " lacks rank 1 and rank 2 and rank 3" + fix);

  state last(made, forward, {0, 4}, {}, choice(made, {}, {}));
  last.leave();
  EXPECT_TRUE(last.expects_words()) << "rank 0 stays to the last";
  last.hear(2, left, 0);
  last.hear(3, left, 0);
  EXPECT_TRUE(last.expects_words());
  last.hear(1, left, 0);
  EXPECT_FALSE(last.expects_words());

  state many(made, forward, {0, 7}, {}, choice(made, {}, {}));
  many.hear(1, chunk_numbers{0, 1, 2, 3, 4, 5}, 0);
  const std::string whom = " lacks rank 0 and rank 2 and rank 3 and rank 4 and 2 more ranks";
  EXPECT_EQ(said([&] { many.leave(); }), "rank 0 has left and others wait: " + name(0) + whom +
                                             "; " + name(1) + whom + "; " + name(2) + whom + "; " +
                                             name(3) + whom + "; and 2 more" + fix);
}

}  // namespace
}  // namespace tutti::test
