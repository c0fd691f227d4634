// Laws of every schedule, typed over the list in support/policies.hpp, for the machine alone,
// without coordination or engine. Facts are compared with the machine's behaviour in both
// directions.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <gtest/gtest.h>
#include <new>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "support/policies.hpp"
#include "support/schedule_settings.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/role/schedule.hpp"

namespace {
std::size_t allocations = 0;  // of the whole program, which has one thread
}  // namespace

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) {
    return memory;
  }
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace tutti::test {
namespace {

using chunks = std::vector<std::uint32_t>;

/// A rank that trains with a schedule alone. Chunks start as soon as they may, and the time that
/// their bytes take is random.
template <class Schedule>
class rank_alone {
 public:
  rank_alone(const plan& made, const options_of<Schedule>& set, unsigned seed)
      : plan_(&made), state_(made, set), random_(seed), at_(made.chunks.size()) {
    order_.reserve(256);
    under_way_.reserve(made.chunks.size());
  }

  /// Takes a step in which buckets fill in a random order, each after its last step has arrived.
  /// Returns false if nothing is under way and nothing may start.
  bool step() {
    chunks late;
    for (std::uint32_t bucket = 0; bucket < plan_->buckets.size(); ++bucket) {
      late.push_back(bucket);
    }
    std::shuffle(late.begin(), late.end(), random_);
    while (!late.empty()) {
      if (has_arrived(late.back()) && random_() % 2 == 0) {
        fill(late.back());
        late.pop_back();
      } else if (!under_way_.empty()) {
        release(random_() % under_way_.size());
      } else if (!has_arrived(late.back())) {
        return false;
      }
    }
    return true;
  }
  /// Runs until all chunks have arrived.
  bool end() {
    while (!under_way_.empty()) {
      release(random_() % under_way_.size());
    }
    return std::all_of(at_.begin(), at_.end(), [](where each) { return each == where::here; });
  }

  void fill(std::uint32_t bucket) {
    for_each_chunk(bucket, [&](std::uint32_t chunk) { at_[chunk] = where::ready; });
    state_.ready(bucket);
    go_on();
  }
  bool has_gone(std::uint32_t bucket) const {
    bool gone = true;
    for_each_chunk(bucket, [&](std::uint32_t chunk) { gone = gone && at_[chunk] != where::ready; });
    return gone;
  }

  typename Schedule::state& state() { return state_; }
  const chunks& order() const { return order_; }
  /// Returns whether a chunk started twice, or before its gradients were ready.
  bool went_unready() const { return went_unready_; }

 private:
  enum class where : char { here, ready, under_way };

  template <class Visit>
  void for_each_chunk(std::uint32_t bucket, Visit visit) const {
    const tutti::bucket& its = plan_->buckets[bucket];
    for (std::uint32_t chunk = its.first_chunk; chunk < its.first_chunk + its.chunks; ++chunk) {
      visit(chunk);
    }
  }
  bool has_arrived(std::uint32_t bucket) const {
    bool arrived = true;
    for_each_chunk(bucket,
                   [&](std::uint32_t chunk) { arrived = arrived && at_[chunk] == where::here; });
    return arrived;
  }
  void release(std::size_t which) {
    const std::uint32_t chunk = under_way_[which];
    under_way_.erase(under_way_.begin() + static_cast<std::ptrdiff_t>(which));
    at_[chunk] = where::here;
    state_.released(chunk);
    go_on();
  }
  void go_on() {
    while (const auto chunk = state_.next()) {
      went_unready_ = went_unready_ || at_[*chunk] != where::ready;
      at_[*chunk] = where::under_way;
      under_way_.push_back(*chunk);
      order_.push_back(*chunk);
    }
  }

  const plan* plan_;
  typename Schedule::state state_;
  std::mt19937 random_;
  std::vector<where> at_;
  chunks under_way_{};
  chunks order_{};
  bool went_unready_ = false;
};

/// Returns plans with one chunk a bucket, with several, and without elements.
std::vector<plan> plans() {
  return {cut({5}), cut({3, 2, 4}, 2), cut({1, 0, 7, 0, 2, 9}, 3), cut({0, 0})};
}

/// Calls `check(plan, options)` for every plan and each of its settings.
template <class Schedule, class Check>
void with_each_setting(Check check) {
  for (const plan& made : plans()) {
    const auto all = settings_of<Schedule>(made);
    for (std::size_t which = 0; which < all.size(); ++which) {
      SCOPED_TRACE(std::to_string(made.chunks.size()) + " chunks, setting " +
                   std::to_string(which));
      check(made, all[which]);
    }
  }
}

template <class Schedule>
class schedule_law : public testing::Test {};
TYPED_TEST_SUITE(schedule_law, testing_lists::schedules);

TYPED_TEST(schedule_law, lets_each_chunk_go_once_a_step_when_it_is_ready) {
  with_each_setting<TypeParam>([](const plan& made, const options_of<TypeParam>& set) {
    for (unsigned seed = 0; seed < 20; ++seed) {
      rank_alone<TypeParam> rank(made, set, seed);
      constexpr int steps = 20;
      for (int step = 0; step < steps; ++step) {
        ASSERT_TRUE(rank.step()) << "nothing is on its way, and nothing goes";
      }
      ASSERT_TRUE(rank.end()) << "something never goes";
      ASSERT_FALSE(rank.went_unready());
      std::vector<int> went(made.chunks.size());
      for (const std::uint32_t chunk : rank.order()) {
        ++went[chunk];
      }
      ASSERT_EQ(went, std::vector<int>(made.chunks.size(), steps));
    }
  });
}

TYPED_TEST(schedule_law, says_whether_it_limits_what_is_under_way) {
  bool waits = false;
  with_each_setting<TypeParam>([&](const plan& made, const options_of<TypeParam>& set) {
    rank_alone<TypeParam> rank(made, set, 1);
    for (std::uint32_t bucket = 0; bucket < made.buckets.size(); ++bucket) {
      rank.fill(bucket);
    }
    waits = waits || rank.order().size() < made.chunks.size();
  });
  EXPECT_EQ(waits, TypeParam::limits_in_flight);
}

TYPED_TEST(schedule_law, says_whether_its_order_is_the_plans) {
  bool is_static = true;
  with_each_setting<TypeParam>([&](const plan& made, const options_of<TypeParam>& set) {
    std::set<chunks> orders;
    for (unsigned seed = 0; seed < 20; ++seed) {
      rank_alone<TypeParam> rank(made, set, seed);
      for (int step = 0; step < 3; ++step) {
        ASSERT_TRUE(rank.step());
      }
      ASSERT_TRUE(rank.end());
      orders.insert(rank.order());
    }
    is_static = is_static && orders.size() == 1;
  });
  EXPECT_EQ(is_static, TypeParam::static_order);
}

TYPED_TEST(schedule_law, says_whether_a_full_bucket_waits_for_others) {
  bool waits = false;
  with_each_setting<TypeParam>([&](const plan& made, const options_of<TypeParam>& set) {
    for (std::uint32_t first = 0; first < made.buckets.size(); ++first) {
      rank_alone<TypeParam> rank(made, set, 1);
      rank.fill(first);
      rank.end();
      waits = waits || !rank.has_gone(first);
    }
  });
  EXPECT_EQ(waits, facts::holds_back<TypeParam>);
}

/// A rank that is told which chunk starts has the same credit as the rank that chooses it.
TYPED_TEST(schedule_law, gives_credit_to_whom_it_takes_it_from) {
  if constexpr (!TypeParam::limits_in_flight) {
    GTEST_SKIP() << "it has no credit";
  } else {
    with_each_setting<TypeParam>([](const plan& made, const options_of<TypeParam>& set) {
      typename TypeParam::state chooses(made, set);
      typename TypeParam::state is_told(made, set);
      std::mt19937 random(7);
      chunks under_way;
      const auto agree = [&] {
        for (std::uint32_t chunk = 0; chunk < made.chunks.size(); ++chunk) {
          ASSERT_EQ(chooses.admits(chunk), is_told.admits(chunk)) << chunk;
        }
      };
      const auto release = [&] {
        const std::size_t which = random() % under_way.size();
        const std::uint32_t chunk = under_way[which];
        under_way.erase(under_way.begin() + static_cast<std::ptrdiff_t>(which));
        chooses.released(chunk);
        is_told.released(chunk);
        agree();
      };
      for (int step = 0; step < 20; ++step) {
        for (std::uint32_t bucket = 0; bucket < made.buckets.size(); ++bucket) {
          chooses.ready(bucket);
        }
        for (std::size_t gone = 0; gone < made.chunks.size();) {
          std::vector<char> admitted(made.chunks.size());
          for (std::uint32_t chunk = 0; chunk < made.chunks.size(); ++chunk) {
            admitted[chunk] = chooses.admits(chunk) ? 1 : 0;
          }
          if (const auto chunk = chooses.next()) {
            ASSERT_TRUE(admitted[*chunk]);
            is_told.take(*chunk);
            under_way.push_back(*chunk);
            ++gone;
            agree();
          } else {
            ASSERT_FALSE(under_way.empty());
            release();
          }
        }
        while (!under_way.empty()) {
          release();
        }
      }
    });
  }
}

TYPED_TEST(schedule_law, allocates_nothing_once_it_is_made) {
  with_each_setting<TypeParam>([](const plan& made, const options_of<TypeParam>& set) {
    typename TypeParam::state state(made, set);
    chunks under_way;
    under_way.reserve(made.chunks.size());
    const std::size_t before = allocations;
    for (int step = 0; step < 100; ++step) {
      for (std::uint32_t bucket = 0; bucket < made.buckets.size(); ++bucket) {
        state.ready(bucket);
      }
      for (std::size_t gone = 0; gone < made.chunks.size();) {
        if (const auto chunk = state.next()) {
          under_way.push_back(*chunk);
          ++gone;
        } else if (under_way.empty()) {
          break;
        } else {
          state.released(under_way.back());
          under_way.pop_back();
        }
      }
      while (!under_way.empty()) {
        state.released(under_way.back());
        under_way.pop_back();
      }
    }
    EXPECT_EQ(allocations, before);
  });
}

TYPED_TEST(schedule_law, has_nothing_to_say_of_nothing) {
  const plan empty;
  for (const auto& set : settings_of<TypeParam>(empty)) {
    typename TypeParam::state state(empty, set);
    EXPECT_EQ(state.next(), std::nullopt);
  }
}

/// Second halves never begin before all first halves have ended. Each chunk begins once, in an
/// order that is equal on all ranks, whenever their first halves end.
TYPED_TEST(schedule_law, begins_second_halves_alike_after_the_first) {
  if constexpr (!facts::splits_phases<TypeParam>) {
    GTEST_SKIP() << "its exchanges are whole";
  } else {
    with_each_setting<TypeParam>([](const plan& made, const options_of<TypeParam>& set) {
      std::size_t exchanges = 0;
      for (const chunk& each : made.chunks) {
        exchanges += each.elements > 0 ? 1 : 0;
      }
      std::set<chunks> orders;
      for (unsigned seed = 0; seed < 20 && exchanges > 0; ++seed) {
        std::mt19937 random(seed);
        typename TypeParam::second_half machine(made, set);
        for (int step = 0; step < 3; ++step) {
          for (std::size_t half = 0; half < exchanges; ++half) {
            ASSERT_EQ(machine.next(), std::nullopt);
            machine.half_done();
          }
          chunks order;
          for (std::size_t under_way = 0; order.size() < exchanges || under_way > 0;) {
            const auto next = random() % 2 == 0 || under_way == 0 ? machine.next() : std::nullopt;
            if (next) {
              order.push_back(*next);
              ++under_way;
            } else {
              ASSERT_GT(under_way, 0U) << "nothing is on its way, and nothing goes";
              machine.done();
              --under_way;
            }
          }
          ASSERT_EQ(std::set<std::uint32_t>(order.begin(), order.end()).size(), exchanges);
          orders.insert(order);
        }
      }
      EXPECT_LE(orders.size(), 1U);
    });
  }
}

}  // namespace
}  // namespace tutti::test
