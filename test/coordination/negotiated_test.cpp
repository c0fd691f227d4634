// Negotiated launches, compared with a plainly written coordinator, and what the machine reports.
#include "tutti/coordination/negotiated.hpp"

#include <cstddef>
#include <gtest/gtest.h>
#include <optional>
#include <string>

#include "coordination/plain_coordinator.hpp"
#include "coordination/toy_world.hpp"
#include "support/extent.hpp"
#include "tutti/base/error.hpp"
#include "tutti/fusion/when_ready.hpp"
#include "tutti/schedule/as_ready.hpp"

namespace tutti::test {
namespace {

toy_log trained(const job& of, const setting& set, int steps) {
  using namespace coordination;
  return train(of.forward, of.made, set.size, steps,
               machines<negotiated, schedule::as_ready, fusion::when_ready>(
                   {set.by, set.cache}, {}, {.bytes = set.threshold, .cycle = 1.0 / 8192}),
               set.seed);
}

TEST(Negotiated, LaunchesWhatAPlainCoordinatorLaunches) {
  for (const int size : {1, 2, 3, 4, 5}) {
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
  for (const int size : {2, 3, 4, 5}) {
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
        if (cache == 1024 && read(each).names.empty()) {  // steady: a bit a bucket
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

/// One tick takes everything that became ready in its cycle; a step without anything new has no
/// tick.
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
  only.tick(10.2);  // too early: a sleeper may be woken for an earlier time
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

/// What rank 0 reports when a rank leaves while others have reported tensors.
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
      ". Fix: give every rank as many batches, or call join() where there are no more; call "
      "replan() on every rank between the same two steps";
  state zero(made, forward, {0, 4}, {}, choice(made, {}, {}));
  for (const int rank : {1, 2, 3}) {  // all report one bucket, so no rank waits for it
    zero.hear(rank, chunk_numbers{5}, 0);
  }
  zero.ready(5, 0);
  zero.hear(1, chunk_numbers{0, 2}, 0);
  zero.hear(2, chunk_numbers{2}, 0);
  zero.ready(2, 0);
  EXPECT_EQ(said([&] { zero.hear(3, left, 0); }),
            "rank 3 has left or called replan(), and others wait: " + name(0) +
                " is missing from rank 0 and rank 2 and rank 3; " + name(2) +
                " is missing from rank 3" + fix);

  state late(made, forward, {0, 4}, {}, choice(made, {}, {}));
  EXPECT_EQ(said([&] { late.hear(3, left, 0); }), "") << "nobody waits yet";
  EXPECT_FALSE(late.expects_words());
  EXPECT_EQ(said([&] { late.ready(1, 0); }),
            "rank 3 has left or called replan(), and others wait: " + name(1) +
                " is missing from rank 1 and rank 2 and rank 3" + fix);

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
  const std::string whom =
      " is missing from rank 0 and rank 2 and rank 3 and rank 4 and 2 more ranks";
  EXPECT_EQ(said([&] { many.leave(); }),
            "rank 0 has left or called replan(), and others wait: " + name(0) + whom + "; " +
                name(1) + whom + "; " + name(2) + whom + "; " + name(3) + whom + "; and 2 more" +
                fix);
}

}  // namespace
}  // namespace tutti::test
