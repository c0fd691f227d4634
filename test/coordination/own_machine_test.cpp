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
#include "tutti/optimizer/sgd.hpp"
#include "tutti/transport/network.hpp"
#include "tutti/transport/simulated.hpp"

namespace tutti::test {
namespace {

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

TEST(OwnMachine, MaySayAsManyWordsAsItHas) {
  using strategy = compose<counted, architecture::all_reduce<collective::canonical>>;
  for (const int size : {1, 2, 3, 4, 5}) {
    int ended = 0;
    transport::run_simulated(
        transport::network(size, transport::link{1e9, 1e-3}),
        [&](transport::simulated& world) -> task {
          arena memory = model_of(world.rank());
          auto engine = make_engine<strategy>(world, memory.tensors(), optimizer::none{});
          co_await engine.started();
          for (int step = 0; step < 3; ++step) {
            for (const tensor& each : memory.tensors()) {
              std::fill(each.gradient.begin(), each.gradient.end(),
                        static_cast<float>(world.rank() + step));
            }
            for (std::size_t id = memory.tensors().size(); id-- > 0;) {
              engine.ready(tensor_id(id));
            }
            for (std::size_t id = 0; id < memory.tensors().size(); ++id) {
              co_await engine.arrival(tensor_id(id));
            }
            for (const tensor& each : memory.tensors()) {
              for (const float mean : each.gradient) {
                EXPECT_EQ(mean, static_cast<float>(size - 1) / 2 + static_cast<float>(step));
              }
            }
          }
          co_await engine.close();
          ++ended;
        });
    EXPECT_EQ(ended, size);
  }
}

}  // namespace
}  // namespace tutti::test
