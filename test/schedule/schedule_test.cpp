// Schedules as machines: which chunks each lets start, and when.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <gtest/gtest.h>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/schedule_settings.hpp"
#include "tutti/base/error.hpp"
#include "tutti/core/plan_maker.hpp"
#include "tutti/fusion/none.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/partition/none.hpp"
#include "tutti/schedule/as_ready.hpp"
#include "tutti/schedule/at_end.hpp"
#include "tutti/schedule/at_most.hpp"
#include "tutti/schedule/at_once.hpp"
#include "tutti/schedule/by_priority.hpp"
#include "tutti/schedule/in_order.hpp"

namespace tutti {
namespace {

using chunks = std::vector<std::uint32_t>;
using schedule::credit_rule;

using test::cut;

template <class State>
chunks all_of(State& state) {
  chunks all;
  while (const auto next = state.next()) {
    all.push_back(*next);
  }
  return all;
}

// ---- the order of each

TEST(Schedule, WithoutAWindowTheOrderIsItsOwn) {
  const plan made = cut({3, 2, 4}, 2);  // backward: chunks 0 1 | 2 | 3 4
  const auto order = [&]<class S>(S, const std::vector<std::uint32_t>& ready) {
    typename S::state state(made, {});
    std::vector<chunks> seen;
    for (const std::uint32_t bucket : ready) {
      state.ready(bucket);
      seen.push_back(all_of(state));
    }
    return seen;
  };
  using seen = std::vector<chunks>;
  EXPECT_EQ(order(schedule::as_ready(), {1, 2, 0, 1}), (seen{{2}, {3, 4}, {0, 1}, {2}}));
  EXPECT_EQ(order(schedule::in_order(), {1, 0, 2, 0}), (seen{{}, {0, 1, 2}, {3, 4}, {0, 1}}));
  EXPECT_EQ(order(schedule::at_end(), {1, 0, 2, 0, 1, 2}),
            (seen{{}, {}, {0, 1, 2, 3, 4}, {}, {}, {0, 1, 2, 3, 4}}));

  schedule::by_priority::state urgent(made, {.credit = 0});
  for (const std::uint32_t bucket : {0U, 1U, 2U}) {
    urgent.ready(bucket);
  }
  EXPECT_EQ(all_of(urgent), (chunks{3, 4, 2, 0, 1}));
}

TEST(Schedule, AtMostSoManyGoInThePlansOrder) {
  const plan made = cut({3, 2, 4}, 2);  // backward: chunks 0 1 | 2 | 3 4
  for (const std::size_t most : {std::size_t{1}, std::size_t{2}, std::size_t{3}, SIZE_MAX}) {
    std::mt19937 random(static_cast<unsigned>(most));
    schedule::at_most::state state(made, {.exchanges = most});
    for (int step = 0; step < 50; ++step) {
      chunks order;
      std::deque<std::uint32_t> out;
      std::vector<std::uint32_t> late{0, 1, 2};
      std::ranges::shuffle(late, random);
      while (order.size() < made.chunks.size()) {
        if (!late.empty() && random() % 2 == 0) {
          state.ready(late.back());
          late.pop_back();
        }
        for (const std::uint32_t chunk : all_of(state)) {
          order.push_back(chunk);
          out.push_back(chunk);
        }
        ASSERT_LE(out.size(), most);
        const bool next_is_full =
            order.size() < made.chunks.size() &&
            std::ranges::find(late, made.chunks[order.size()].bucket) == late.end();
        ASSERT_TRUE(out.size() == most || !next_is_full) << "there was room for one more";
        EXPECT_EQ(state.admits(0), out.size() < most);
        if (!out.empty() && random() % 2 == 0) {
          state.released(out.front());
          out.pop_front();
        }
      }
      EXPECT_EQ(order, (chunks{0, 1, 2, 3, 4}));
      for (const std::uint32_t chunk : out) {
        state.released(chunk);
      }
    }
  }
  EXPECT_THROW(schedule::at_most::state(made, {.exchanges = 0}), usage_error);
}

/// A link of which one exchange alone uses only a share; the times are worked out by hand.
TEST(Schedule, WhatSeveralAtOnceTake) {
  using schedule::end_of;
  using list = std::vector<schedule::timed_exchange>;
  EXPECT_EQ(end_of(list{}, 1, 1), 0);
  const list two{{0, 0, 1}, {0, 0, 1}};
  EXPECT_EQ(end_of(two, 1, 0.75), 2);
  EXPECT_EQ(end_of(two, 2, 0.75), 1.5);
  EXPECT_EQ(end_of(two, 2, 0.5), 1);
  EXPECT_EQ(end_of(two, 2, 1), 2) << "one alone fills the link";
  const list slow_to_start{{0, 1, 1}, {0, 1, 1}};
  EXPECT_EQ(end_of(slow_to_start, 1, 1), 4);
  EXPECT_EQ(end_of(slow_to_start, 2, 1), 3) << "start-ups overlap";
  const list one_after_the_other{{0, 0, 2}, {1, 0, 1}};
  EXPECT_EQ(end_of(one_after_the_other, 2, 0.75), 2.5);
  const list three{{0, 0, 1}, {0, 0, 1}, {0, 0, 1}};
  EXPECT_EQ(end_of(three, 2, 0.5), 2) << "the third waits for one of two";
  EXPECT_EQ(end_of(three, 3, 0.5), 1.5);
  const list late_head{{5, 0, 1}, {0, 0, 1}};
  EXPECT_EQ(end_of(late_head, 2, 0.5), 6) << "each begins in its turn";
  EXPECT_EQ(end_of(list{{2, 0, 0}}, 1, 1), 2) << "no bytes";
}

TEST(Schedule, AsManyAtOnceAsPay) {
  const plan made = cut({1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000});
  const auto planned = [&made](seconds startup, double share, seconds between = 0) {
    profile known{.backward = std::vector<seconds>(8, between),
                  .message = {startup, 1e-3 / 4000},
                  .share_of_one = share};
    return schedule::at_most::planned({.exchanges = 0}, made, known).exchanges;
  };
  EXPECT_EQ(planned(0, 1), 1U);
  EXPECT_EQ(planned(0, 0.75), 2U);
  EXPECT_EQ(planned(0, 0.5), 2U);
  EXPECT_EQ(planned(0, 0.25), 4U) << "three leave a quarter";
  EXPECT_EQ(planned(1e-3, 1), 4U) << "16 ms one after the other, 10 by four and by five";
  EXPECT_EQ(planned(0, 0.25, 2e-3), 1U) << "each has ended before the next is ready";
  const auto by_table = [&made](std::vector<message_cost::point> table, seconds between) {
    const profile known{.backward = std::vector<seconds>(8, between),
                        .message = message_cost(std::move(table)),
                        .share_of_one = 0.25};
    return schedule::at_most::planned({.exchanges = 0}, made, known).exchanges;
  };
  EXPECT_EQ(by_table({{4000, 1e-3}, {8000, 3e-3}}, 1.5e-3), 1U) << "the line meets 0 at 2000 bytes";
  EXPECT_EQ(by_table({{3000, 5e-3}, {4000, 1e-3}}, 1.5e-3), 1U) << "the line begins at 17 ms";
  EXPECT_EQ(schedule::at_most::planned({.exchanges = 0}, made, {}).exchanges, 1U);
  EXPECT_EQ(schedule::at_most::planned({.exchanges = 5}, made, {}).exchanges, 5U);
}

/// Another rank may decide to start a chunk while there is no room here. Two chunks must then leave
/// before another may start.
TEST(Schedule, AtMostIsCountedBelowZero) {
  const plan made = cut({1, 1, 1});
  schedule::at_most::state state(made, {.exchanges = 1});
  state.take(0);
  state.take(1);
  state.ready(0);
  EXPECT_EQ(state.next(), std::nullopt);
  state.released(0);
  EXPECT_FALSE(state.admits(2));
  state.released(1);
  EXPECT_TRUE(state.admits(2));
}

// ---- credit

/// Both credit rules, written plainly. ByteScheduler takes the most urgent ready chunk as long as
/// there is credit. BytePS goes through the ready chunks by urgency and takes the first that fits.
class window {
 public:
  window(const plan& made, std::size_t credit, credit_rule rule)
      : plan_(&made), most_(static_cast<long>(credit)), credit_(most_), rule_(rule) {}

  void ready(std::uint32_t bucket) {
    for (std::uint32_t c = 0; c < plan_->chunks.size(); ++c) {
      if (plan_->chunks[c].bucket == bucket) {
        waiting_.insert({plan_->chunks[c].priority, c});
      }
    }
  }
  std::optional<std::uint32_t> next() {
    for (const auto& one : waiting_) {
      const std::uint32_t chunk = one.second;
      if (most_ != 0 && rule_ == credit_rule::positive && credit_ <= 0) {
        return std::nullopt;
      }
      if (most_ != 0 && rule_ == credit_rule::fits && size(chunk) > credit_) {
        continue;
      }
      credit_ -= size(chunk);
      waiting_.erase(one);
      return chunk;
    }
    return std::nullopt;
  }
  void released(std::uint32_t chunk) { credit_ = std::min(most_, credit_ + size(chunk)); }

 private:
  long size(std::uint32_t chunk) const {
    return 4 * static_cast<long>(plan_->chunks[chunk].elements);
  }
  const plan* plan_;
  long most_;
  long credit_;
  credit_rule rule_;
  std::set<std::pair<std::uint32_t, std::uint32_t>> waiting_{};
};

TEST(ByPriority, IsBothRulesAsTheyAreWritten) {
  std::mt19937 random(11);
  std::size_t let_go = 0;
  std::size_t held = 0;
  for (int round = 0; round < 400; ++round) {
    std::vector<std::size_t> elements(1 + random() % 6);
    std::size_t largest = 0;
    for (auto& each : elements) {
      each = random() % 12;
      largest = std::max(largest, each);
    }
    const plan made = cut(elements, 1 + random() % 6);
    for (const auto& each : made.chunks) {
      largest = std::max(largest, each.elements);
    }
    const auto rule = random() % 2 == 0 ? credit_rule::positive : credit_rule::fits;
    const std::size_t credit =
        random() % 5 == 0 ? 0 : (rule == credit_rule::fits ? 4 * largest : 1) + random() % 40;
    schedule::by_priority::state state(made, {credit, rule});
    window plain(made, credit, rule);
    std::vector<char> is_out(made.buckets.size());
    std::vector<std::size_t> pieces(made.buckets.size());
    std::deque<std::uint32_t> away;
    for (int event = 0; event < 200; ++event) {
      const auto bucket = static_cast<std::uint32_t>(random() % made.buckets.size());
      if (random() % 2 == 0 && !is_out[bucket]) {
        is_out[bucket] = 1;
        pieces[bucket] = made.buckets[bucket].chunks;
        state.ready(bucket);
        plain.ready(bucket);
      } else if (!away.empty()) {
        const std::size_t which = random() % away.size();
        const std::uint32_t back = away[which];
        away.erase(away.begin() + static_cast<std::ptrdiff_t>(which));
        state.released(back);
        plain.released(back);
        if (--pieces[made.chunks[back].bucket] == 0) {
          is_out[made.chunks[back].bucket] = 0;
        }
      }
      for (auto expected = plain.next();; expected = plain.next()) {
        ASSERT_EQ(state.next(), expected) << "round " << round;
        if (!expected) {
          break;
        }
        away.push_back(*expected);
        ++let_go;
      }
      held += !away.empty() && std::ranges::count(is_out, 1) > 0;
    }
  }
  EXPECT_GT(let_go, 10'000U);
  EXPECT_GT(held, 10'000U);
}

/// Four chunks of 12 bytes, and windows that are no multiples of 12: `positive` continues while any
/// credit is left and falls below zero, and `fits` stops before that.
TEST(ByPriority, WindowsTellTheRulesApart) {
  const plan made = cut({12}, 3);
  ASSERT_EQ(made.chunks.size(), 4U);
  const auto begun = [&](std::size_t credit, credit_rule rule) {
    schedule::by_priority::state state(made, {credit, rule});
    state.ready(0);
    return all_of(state).size();
  };
  EXPECT_EQ(begun(1, credit_rule::positive), 1U);
  for (const std::size_t credit : {12u, 24u, 36u}) {  // with whole chunks the rules agree
    EXPECT_EQ(begun(credit, credit_rule::positive), credit / 12);
    EXPECT_EQ(begun(credit, credit_rule::fits), credit / 12);
  }
  for (const std::size_t credit : {13u, 23u, 25u}) {
    EXPECT_EQ(begun(credit, credit_rule::positive), credit / 12 + 1);
    EXPECT_EQ(begun(credit, credit_rule::fits), credit / 12);
  }
  EXPECT_EQ(begun(0, credit_rule::positive), 4U);
  EXPECT_EQ(begun(0, credit_rule::fits), 4U);

  // With 13 bytes credit falls to 11 below zero. After one chunk has come back, the next may not
  // start yet; after two it may.
  schedule::by_priority::state positive(made, {13, credit_rule::positive});
  positive.ready(0);
  EXPECT_EQ(all_of(positive), (chunks{0, 1}));
  positive.released(1);
  EXPECT_EQ(all_of(positive), (chunks{2}));
  positive.released(0);
  positive.released(2);
  EXPECT_EQ(all_of(positive), (chunks{3}));
}

/// `BytePSScheduledQueue::getTask` takes chunks of 12, 8 and 4 bytes, the most urgent first, with
/// 16 bytes of credit: first 12, then 4, passing over 8, and 8 when the 12 are back.
TEST(ByPriority, WhatDoesNotFitIsPassedOver) {
  const plan mixed = cut({3, 2, 1});  // in forward order; chunk 2 is the most urgent
  schedule::by_priority::state fits(mixed, {16, credit_rule::fits});
  for (const std::uint32_t bucket : {0U, 1U, 2U}) {
    fits.ready(bucket);
  }
  EXPECT_EQ(all_of(fits), (chunks{2, 0}));
  fits.released(0);
  EXPECT_EQ(all_of(fits), chunks{});  // there are 4 of 16 bytes, and it needs 8
  fits.released(2);
  EXPECT_EQ(all_of(fits), (chunks{1}));

  // ByteScheduler keeps to the order: with 4 bytes of credit left the next chunk starts, whatever
  // its size.
  schedule::by_priority::state positive(mixed, {16, credit_rule::positive});
  for (const std::uint32_t bucket : {0U, 1U, 2U}) {
    positive.ready(bucket);
  }
  EXPECT_EQ(all_of(positive), (chunks{2, 1}));
}

/// A credit larger than all chunks together, and a plan without a chunk.
TEST(ByPriority, NothingWaitsWhereNothingIs) {
  for (const auto rule : {credit_rule::positive, credit_rule::fits}) {
    const plan made = cut({1, 0, 2});
    for (const std::size_t credit : {std::size_t{12}, SIZE_MAX}) {
      schedule::by_priority::state state(made, {credit, rule});
      EXPECT_EQ(state.next(), std::nullopt);
      state.ready(1);
      EXPECT_EQ(all_of(state), (chunks{1}));
    }
    const plan empty;
    schedule::by_priority::state none(empty, {12, rule});
    EXPECT_EQ(none.next(), std::nullopt);
  }
}

TEST(ByPriority, WhoHasTheOrderFromElsewhereTakesTheCreditHimself) {
  const plan made = cut({6}, 3);
  for (const auto rule : {credit_rule::positive, credit_rule::fits}) {
    schedule::by_priority::state state(made, {12, rule});
    EXPECT_TRUE(state.admits(1));
    state.take(1);
    EXPECT_FALSE(state.admits(0));
    state.ready(0);
    EXPECT_EQ(state.next(), std::nullopt);
    state.released(1);
    EXPECT_TRUE(state.admits(0));
    EXPECT_EQ(state.next(), 0U);
  }
}

TEST(ByPriority, AChunkThatNeverFitsIsRefused) {
  const plan made = cut({3});
  try {
    schedule::by_priority::state state(made, {11, credit_rule::fits});
    FAIL() << "taken";
  } catch (const usage_error& refused) {
    EXPECT_STREQ(refused.what(),
                 "a chunk of 12 bytes never fits in a credit of 11. Fix: raise schedule.credit or "
                 "cut with partition::into");
  }
  schedule::by_priority::state over(made, {11, credit_rule::positive});
  over.ready(0);
  EXPECT_EQ(over.next(), 0U);
}

// ---- priority

/// A piece is as urgent as the earliest tensor in it, whatever the urgency of its bucket.
TEST(Priority, IsThatOfTheTensorsInThePiece) {
  std::mt19937 random(5);
  for (int round = 0; round < 500; ++round) {
    std::vector<tensor> forward;
    for (std::size_t i = 0; i < 1 + random() % 7; ++i) {
      forward.push_back(tensor::phantom("t" + std::to_string(i), random() % 4 * (random() % 5)));
    }
    const std::size_t piece = 4 * (1 + random() % 8);
    const plan made = make_plan(forward, fusion::up_to({.bytes = 4 * (random() % 40)}),
                                partition::into({.bytes = piece}), {}, [](plan&) {});
    std::vector<std::size_t> holder;  // forward index of each element's tensor
    for (std::size_t i = forward.size(); i-- > 0;) {
      holder.insert(holder.end(), forward[i].elements, i);
    }
    for (const auto& each : made.chunks) {
      const auto& group = made.buckets[each.bucket];
      const std::size_t expected = each.elements == 0
                                       ? index(made.at(group.first_tensor + group.tensors - 1))
                                       : holder[each.first_element + each.elements - 1];
      ASSERT_EQ(each.priority, expected) << "round " << round;
    }
  }
  const plan two =
      make_plan(std::vector<tensor>{tensor::phantom("first", 4), tensor::phantom("last", 4)},
                fusion::up_to({.bytes = 1000}), partition::into({.bytes = 16}), {}, [](plan&) {});
  ASSERT_EQ(two.chunks.size(), 2U);
  EXPECT_EQ(two.chunks[0].priority, 1U);
  EXPECT_EQ(two.chunks[1].priority, 0U);
}

}  // namespace
}  // namespace tutti
