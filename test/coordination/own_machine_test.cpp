// A coordination of one's own, written from the words of role/coordination.hpp alone.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "support/training.hpp"
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/core/engine.hpp"
#include "tutti/optimizer/none.hpp"
#include "tutti/optimizer/sgd.hpp"
#include "tutti/transport/network.hpp"
#include "tutti/transport/simulated.hpp"

namespace tutti::test {
namespace {

constexpr seconds pause = 1e-3;

/// Each rank starts what is ready one pause after the first of it became ready.
struct paced {
  using role = tutti::role::coordination;
  static constexpr bool one_order = false;

  template <class Choice>
  class state {
   public:
    state(const plan&, std::span<const tensor>, coordination::ranks, const no_options&,
          Choice choice)
        : choice_(std::move(choice)) {}

    void ready(std::uint32_t bucket, seconds now) {
      choice_.ready(bucket);
      due_ = due_.value_or(now + pause);
    }
    void hear(int, std::span<const std::uint32_t>, seconds) {}
    void released(std::uint32_t chunk, seconds) { choice_.released(chunk); }
    std::optional<seconds> due() const { return due_; }
    void tick(seconds now) {
      if (due_ && now >= *due_) {
        due_.reset();
        open_ = true;
      }
    }
    template <class Say>
    void speak(Say) {}
    template <class IsReady>
    std::optional<std::uint32_t> next(IsReady, std::size_t) {
      const auto chunk = open_ ? choice_.next() : std::nullopt;
      open_ = chunk.has_value();
      return chunk;
    }
    template <class IsReady>
    std::optional<std::uint32_t> stuck(IsReady) const {
      return std::nullopt;
    }
    bool expects_words() const { return false; }

   private:
    Choice choice_;
    std::optional<seconds> due_{};
    bool open_ = false;
  };
};
static_assert(coordination_policy<paced>);

/// Rank 0 starts a bucket once every rank has reported it. Each report and each start is said in a
/// call of its own.
struct counted {
  using role = tutti::role::coordination;
  static constexpr bool one_order = true;

  template <class Choice>
  class state {
   public:
    state(const plan& made, std::span<const tensor>, coordination::ranks all, const no_options&,
          Choice choice)
        : choice_(std::move(choice)), all_(all), reports_(made.buckets.size()) {}

    void ready(std::uint32_t bucket, seconds) {
      if (all_.rank == 0) {
        count(bucket);
      } else {
        unsaid_.push_back(bucket);
      }
    }
    void hear(int, std::span<const std::uint32_t> words, seconds) {
      for (const std::uint32_t word : words) {
        if (all_.rank == 0) {
          count(word);
        } else {
          decided_.push_back(word);
        }
      }
    }
    void released(std::uint32_t chunk, seconds) {
      if (all_.rank == 0) {
        choice_.released(chunk);
      }
    }
    std::optional<seconds> due() const { return std::nullopt; }
    void tick(seconds) {}
    template <class Say>
    void speak(Say say) {
      for (const std::uint32_t word : std::exchange(unsaid_, {})) {
        say(std::span(&word, 1));
      }
    }
    template <class IsReady>
    std::optional<std::uint32_t> next(IsReady is_ready, std::size_t) {
      if (decided_.empty() || !is_ready(decided_.front())) {
        return std::nullopt;
      }
      const std::uint32_t chunk = decided_.front();
      decided_.erase(decided_.begin());
      return chunk;
    }
    template <class IsReady>
    std::optional<std::uint32_t> stuck(IsReady) const {
      return decided_.empty() ? std::nullopt : std::optional(decided_.front());
    }
    bool expects_words() const { return false; }

   private:
    void count(std::uint32_t bucket) {
      if (++reports_.at(bucket) == all_.size) {
        reports_[bucket] = 0;
        choice_.ready(bucket);
        while (const auto chunk = choice_.next()) {
          decided_.push_back(*chunk);
          unsaid_.push_back(*chunk);
        }
      }
    }

    Choice choice_;
    coordination::ranks all_;
    std::vector<int> reports_;
    std::vector<std::uint32_t> unsaid_{};
    std::vector<std::uint32_t> decided_{};
  };
};
static_assert(coordination_policy<counted>);

/// Hands in every gradient of a step, and ends when all means have arrived.
template <class Engine>
task take_step_on_a_clock(Engine& engine, const arena& memory) {
  for (std::size_t id = memory.tensors().size(); id-- > 0;) {
    engine.ready(tensor_id(id));
  }
  for (std::size_t id = 0; id < memory.tensors().size(); ++id) {
    co_await engine.arrival(tensor_id(id));
  }
}

TEST(OwnMachine, MaySayAsManyWordsAsItHas) {
  using strategy = compose<counted, architecture::all_reduce<collective::canonical>>;
  for (const int size : {1, 2, 3, 4, 5}) {
    int ended = 0;
    const auto rank = [&](transport::simulated& world) -> task {
      arena memory = model_of(world.rank());
      auto engine = make_engine<strategy>(world, memory.tensors(), optimizer::none{});
      co_await engine.started();
      for (int step = 0; step < 3; ++step) {
        std::ranges::fill(memory.gradients(), static_cast<float>(world.rank() + step));
        task taking = take_step_on_a_clock(engine, memory);
        co_await taking;
        for (const float mean : memory.gradients()) {
          EXPECT_EQ(mean, static_cast<float>(size - 1) / 2 + static_cast<float>(step));
        }
      }
      co_await engine.close();
      ++ended;
    };
    transport::run_simulated(transport::network(size, transport::link{1e9, 1e-3}), rank);
    EXPECT_EQ(ended, size);
  }
}

TEST(OwnMachine, IsToldTheTimeThatItAsksFor) {
  using strategy = compose<paced, architecture::all_reduce<collective::canonical>>;
  for (const int size : {1, 2, 3}) {
    int ended = 0;
    const auto rank = [&](transport::simulated& world) -> task {
      arena memory = model_of(world.rank());
      auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of());
      co_await engine.started();
      for (int step = 0; step < 3; ++step) {
        const seconds begun = world.now();
        backward(memory, engine.worker(), step);
        task taking = take_step_on_a_clock(engine, memory);
        co_await taking;
        EXPECT_GE(world.now(), begun + pause);
        EXPECT_LT(world.now(), begun + 2 * pause);
      }
      co_await engine.close();
      ++ended;
    };
    transport::run_simulated(transport::network(size, transport::link{1e9, 1e-6}), rank);
    EXPECT_EQ(ended, size);
  }
}

}  // namespace
}  // namespace tutti::test
