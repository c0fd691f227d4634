// Laws of every coordination under every schedule: no rank waits forever, and where the
// coordination promises it, all ranks make the same launches in one order.
#include <cstdint>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

#include "coordination/toy_world.hpp"
#include "support/extent.hpp"
#include "support/policies.hpp"
#include "support/schedule_settings.hpp"
#include "tutti/base/type_name.hpp"
#include "tutti/coordination/leader.hpp"
#include "tutti/coordination/learned.hpp"
#include "tutti/coordination/local.hpp"
#include "tutti/coordination/negotiated.hpp"
#include "tutti/fusion/by_arrival.hpp"
#include "tutti/fusion/when_ready.hpp"
#include "tutti/schedule/as_ready.hpp"
#include "tutti/schedule/at_end.hpp"
#include "tutti/schedule/by_priority.hpp"
#include "tutti/schedule/in_order.hpp"

namespace tutti::test {
namespace {

/// Gradients and waits are interleaved tensor by tensor, in another order on every rank.
template <class Coordination>
void keeps_the_law(const char* name, const machine_maker& maker, int steps = many_steps) {
  for (const int size : {1, 2, 3, 4, 5}) {
    const auto forward = toy_tensors(5);
    const plan made = toy_plan(forward, 3);
    const int taken = size == 3 ? steps : steps / 20;
    const auto log = train(forward, made, size, taken, maker, static_cast<unsigned>(size));
    ASSERT_TRUE(log.ended) << name << " waits for ever on " << size << " ranks";
    ASSERT_TRUE(log.members_agree) << name;
    std::size_t launched = 0;
    for (const auto& each : log.launches[0]) {
      launched += each.size();
    }
    EXPECT_EQ(launched, made.chunks.size() * static_cast<std::size_t>(taken)) << name;
    if (Coordination::one_order) {
      for (const auto& each : log.launches) {
        ASSERT_EQ(each, log.launches[0]) << name << " has two orders on " << size << " ranks";
      }
    }
  }
}

/// Returns the options with which a coordination's laws are checked.
template <class Coordination>
std::vector<options_of<Coordination>> ways_of() {
  std::vector<options_of<Coordination>> all(1);
  if constexpr (requires(options_of<Coordination> set) { set.cache = 2; }) {
    all.push_back({coordination::identity::name, 2});
  }
  return all;
}

/// Calls `check(name, options, steps)` for every schedule of the list and each of its settings. The
/// last setting, which has the smallest window, gets many steps.
template <class... Schedules, class Check>
void with_each_schedule(testing::Types<Schedules...>, Check check) {
  const auto with_each_setting = [&]<class Schedule>(const Schedule*) {
    const auto all = settings_of<Schedule>(toy_plan(toy_tensors(5), 3));
    for (std::size_t which = 0; which < all.size(); ++which) {
      check.template operator()<Schedule>(std::string(type_name<Schedule>()).c_str(), all[which],
                                          which + 1 == all.size() ? many_steps : many_steps / 20);
    }
  };
  (with_each_setting(static_cast<const Schedules*>(nullptr)), ...);
}

template <class Coordination>
class coordination_law : public testing::Test {};
TYPED_TEST_SUITE(coordination_law, testing_lists::coordinations);

/// Where ranks decide alone, the schedule must limit nothing or have an order that follows from the
/// plan.
TYPED_TEST(coordination_law, nobody_waits_for_ever) {
  with_each_schedule(
      testing_lists::schedules(),
      []<class Schedule>(const char* name, const options_of<Schedule>& set, int steps) {
        constexpr bool agreed = TypeParam::one_order;
        if constexpr (agreed || !needs_one_order<Schedule>) {
          for (const auto& way : ways_of<TypeParam>()) {
            keeps_the_law<TypeParam>(name, machines<TypeParam, Schedule>(way, set),
                                     agreed ? steps : many_steps / 20);
          }
        }
      });
}

TYPED_TEST(coordination_law, ranks_gather_alike) {
  if constexpr (!TypeParam::one_order) {
    GTEST_SKIP() << "every rank decides alone";
  } else {
    using fusion::by_arrival;
    using fusion::when_ready;
    using schedule::as_ready;
    using schedule::by_priority;
    for (const auto& way : ways_of<TypeParam>()) {
      for (const double cycle : {0.0, 1e-4}) {
        const when_ready::options buffers{.bytes = 32, .cycle = cycle};
        keeps_the_law<TypeParam>("gathered",
                                 machines<TypeParam, as_ready, when_ready>(way, {}, buffers));
        keeps_the_law<TypeParam>("gathered, window",
                                 machines<TypeParam, by_priority, when_ready>(
                                     way, {40, schedule::credit_rule::fits}, buffers));
      }
      for (const auto when : {fusion::rebuild::after_first_step, fusion::rebuild::after_second_step,
                              fusion::rebuild::never}) {
        keeps_the_law<TypeParam>("by arrival",
                                 machines<TypeParam, as_ready, by_arrival>(
                                     way, {}, {.bytes = 32, .first_bytes = 12, .rebuild = when}),
                                 many_steps / 20);
      }
    }
  }
}

/// Where each rank decides alone and an exchange needs all ranks, every schedule that limits
/// flights in an order of its own waits forever, at least with its smallest window.
TEST(CoordinationLaw, LocalWithAWindowWaitsForEver) {
  for (const int size : {2, 3, 4, 5}) {
    std::map<std::string, bool> hangs;
    with_each_schedule(
        testing_lists::schedules(),
        [&]<class Schedule>(const char* name, const options_of<Schedule>& set, int steps) {
          if constexpr (needs_one_order<Schedule>) {
            const auto forward = toy_tensors(5);
            const plan made = toy_plan(forward, 3);
            const auto maker = machines<coordination::local, Schedule>({}, set);
            hangs[name] = hangs[name] || !train(forward, made, size, steps, maker).ended;
          }
        });
    for (const auto& [name, any] : hangs) {
      EXPECT_TRUE(any) << name << " on " << size << " ranks";
    }
    EXPECT_FALSE(hangs.empty());
  }
}

TEST(CoordinationLaw, LocalWithoutAWindow) {
  constexpr schedule::by_priority::options no_window{0, schedule::credit_rule::positive};
  using coordination::local;
  keeps_the_law<local>("by_priority", machines<local, schedule::by_priority>({}, no_window), 1000);
}

TEST(CoordinationLaw, TheLearnedOrderSaysNothingAfterTheFirstStep) {
  const auto forward = toy_tensors(6);
  const plan made = toy_plan(forward);
  const auto log =
      train(forward, made, 3, 100, machines<coordination::learned, schedule::as_ready>());
  std::size_t words = 0;
  for (const auto& each : log.said[0]) {
    words += each.size();
  }
  EXPECT_EQ(words, made.chunks.size());
  EXPECT_TRUE(log.said[1].empty());
  for (std::size_t i = 0; i < log.launches[0].size(); ++i) {
    ASSERT_EQ(log.launches[0][i], log.launches[0][i % made.chunks.size()]);
  }
}

TEST(CoordinationLaw, GroupsByArrivalAreLearnedOnceTheyStay) {
  const auto forward = toy_tensors(6);
  const plan made = toy_plan(forward);
  const std::size_t n = made.chunks.size();
  for (const auto& [when, led] :
       {std::pair{fusion::rebuild::after_first_step, 2U},
        std::pair{fusion::rebuild::after_second_step, 3U}, std::pair{fusion::rebuild::never, 1U}}) {
    const auto log = train(forward, made, 3, 20,
                           machines<coordination::learned, schedule::as_ready, fusion::by_arrival>(
                               {}, {}, {.bytes = 32, .first_bytes = 12, .rebuild = when}));
    std::size_t words = 0;
    for (const auto& each : log.said[0]) {
      words += each.size();
    }
    std::size_t launched = 0;
    std::size_t told = 0;
    std::vector<std::vector<chunk_numbers>> steps(1);
    for (const auto& each : log.launches[0]) {
      told += launched < led * n ? (each.size() == 1 ? 1 : 1 + each.size()) : 0;
      steps.back().push_back(each);
      launched += each.size();
      if (launched % n == 0) {
        steps.emplace_back();
      }
    }
    ASSERT_EQ(steps.size(), 21U);
    EXPECT_EQ(words, told) << "nobody says anything once the order has been recorded";
    EXPECT_TRUE(log.said[1].empty());
    for (std::size_t step = 0; step < 20; ++step) {
      EXPECT_EQ(steps[step].size() == 1, step + 1 < led) << step;
      if (step + 1 >= led) {
        EXPECT_EQ(steps[step], steps[19]) << step;
      }
    }
  }
}

TEST(CoordinationLaw, TheLearnedOrderIsResumed) {
  using choice = coordination::choice<schedule::as_ready, fusion::when_ready>;
  using state = coordination::learned::state<choice>;
  const auto forward = toy_tensors(4);
  const plan made = toy_plan(forward);
  const fusion::when_ready::options buffers{.bytes = 1000, .cycle = 0};
  const auto make = [&] {
    return std::make_unique<state>(made, forward, coordination::ranks{0, 1}, no_options(),
                                   choice(made, {}, buffers));
  };
  const std::size_t all = std::size_t{1} << 30;
  const auto first = make();
  for (const std::uint32_t bucket : {2U, 0U, 3U, 1U}) {
    EXPECT_TRUE(first->learned_order().empty());
    first->ready(bucket, 0);
    EXPECT_EQ(first->next(coordination::all_ready(), all), bucket);
  }
  const std::vector<std::uint32_t> order(first->learned_order().begin(),
                                         first->learned_order().end());
  EXPECT_EQ(order, (std::vector<std::uint32_t>{1, 2, 1, 0, 1, 3, 1, 1}));

  const auto gathered = make();
  gathered->resume(std::vector<std::uint32_t>{1, 2, 3, 0, 1, 3});
  EXPECT_EQ(gathered->next([](std::uint32_t c) { return c != 2; }, all), std::nullopt);
  EXPECT_EQ(gathered->stuck([](std::uint32_t c) { return c != 2; }), 2U);
  EXPECT_EQ(gathered->next(coordination::all_ready(), all), 2U);
  EXPECT_EQ(gathered->next([](std::uint32_t c) { return c != 3; }, all), std::nullopt);
  EXPECT_EQ(gathered->next(coordination::all_ready(), all), 0U);
  EXPECT_EQ(gathered->after(0), 1U);
  EXPECT_EQ(gathered->after(1), 3U);
  EXPECT_EQ(gathered->after(3), coordination::no_chunk);
  EXPECT_EQ(gathered->next(coordination::all_ready(), all), 2U);

  for (const std::vector<std::uint32_t>& other :
       {std::vector<std::uint32_t>{1, 2, 1, 0, 1, 3}, std::vector<std::uint32_t>{4, 0, 1, 2, 4},
        std::vector<std::uint32_t>{2, 0, 1, 2, 1, 2}, std::vector<std::uint32_t>{9, 0, 1, 2, 3},
        std::vector<std::uint32_t>{0}, std::vector<std::uint32_t>{}}) {
    EXPECT_THROW(make()->resume(other), usage_error);
  }
}

/// Rank 0 knows which tensor not all ranks have reported.
TEST(CoordinationLaw, NegotiatedNamesWhatIsMissing) {
  const auto forward = toy_tensors(6);
  const plan made = toy_plan(forward);
  for (const int silent : {0, 2}) {
    toy_world world(forward, made, 3, machines<coordination::negotiated, schedule::as_ready>(), 5);
    const auto log = world.run(1, silent, 4);
    EXPECT_FALSE(log.ended);
    EXPECT_EQ(log.stuck, 4U);
  }
  toy_world world(forward, made, 3, machines<coordination::learned, schedule::as_ready>(), 5);
  EXPECT_EQ(world.run(3, 0, 4).stuck, std::nullopt);  // no launch that has been decided waits
}

/// Rank 0, far ahead of the others, stops when there is no room and continues when they have caught
/// up.
TEST(CoordinationLaw, RankZeroRunsNoFurtherAheadThanThereIsRoom) {
  using choice = coordination::choice<schedule::as_ready, fusion::none>;
  using state = coordination::leader::state<choice>;
  const auto forward = toy_tensors(3);
  const plan made = toy_plan(forward);
  const auto make = [&](int rank) {
    return std::make_unique<state>(made, forward, coordination::ranks{rank, 2}, no_options(),
                                   choice(made, {}, {}));
  };
  const auto zero = make(0);
  const auto one = make(1);
  std::vector<std::uint32_t> mail;
  const auto take = [&](std::span<const std::uint32_t> words) {
    mail.insert(mail.end(), words.begin(), words.end());
  };
  const std::size_t all = std::size_t{1} << 40;
  std::size_t begun = 0;
  const auto step = [&] {  // rank 0's exchanges end when they begin, as on a stream
    for (std::uint32_t bucket = 0; bucket < 3; ++bucket) {
      zero->ready(bucket, 0);
      while (zero->next(coordination::all_ready(), all)) {
        ++begun;
      }
    }
  };
  std::size_t carried = 0;
  std::size_t steps = 0;
  for (int round = 0; round < 100; ++round) {
    const std::size_t before = begun;
    while (begun == 3 * steps) {
      step();
      ++steps;
    }
    EXPECT_GT(begun, before) << "nothing was decided in round " << round;
    EXPECT_LE(begun - carried, coordination::decided<false>::room(made));
    zero->speak(take);
    EXPECT_TRUE(zero->expects_words());
    one->hear(0, mail, 0);
    mail.clear();
    while (one->next(coordination::all_ready(), all)) {
      ++carried;
    }
    EXPECT_EQ(carried, begun);
    EXPECT_TRUE(one->expects_words());
    one->speak(take);
    EXPECT_FALSE(one->expects_words());
    ASSERT_EQ(mail.size(), 1U);
    zero->hear(1, mail, 0);
    mail.clear();
    while (zero->next(coordination::all_ready(), all)) {
      ++begun;
    }
    EXPECT_EQ(begun, 3 * steps) << "what waited for room goes when there is some";
  }
}

TEST(CoordinationLaw, WordsInAnotherOrderAreRefused) {
  using choice = coordination::choice<schedule::as_ready, fusion::none>;
  using state = coordination::leader::state<choice>;
  const auto forward = toy_tensors(3);
  const plan made = toy_plan(forward);
  state zero(made, forward, {0, 2}, {}, choice(made, {}, {}));
  state one(made, forward, {1, 2}, {}, choice(made, {}, {}));
  std::vector<std::uint32_t> mail;
  for (const std::uint32_t bucket : {1U, 0U}) {
    zero.ready(bucket, 0);
    zero.speak([&](std::span<const std::uint32_t> words) {
      mail.insert(mail.end(), words.begin(), words.end());
    });
  }
  ASSERT_EQ(mail.size(), 2U);
  std::swap(mail[0], mail[1]);
  EXPECT_THROW(one.hear(0, mail, 0), communication_error);
}

}  // namespace
}  // namespace tutti::test
