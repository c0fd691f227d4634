// Schedules that hold chunks back, over every architecture: nothing deadlocks. If every rank
// decides alone, the same run hangs, which shows that the law can fail.
#include <cstddef>
#include <gtest/gtest.h>
#include <tuple>
#include <type_traits>

#include "support/order_laws.hpp"
#include "tutti/architecture/switch_at.hpp"
#include "tutti/base/error.hpp"
#include "tutti/fusion/when_ready.hpp"

namespace tutti::test {
namespace {

TEST(OrderOfWindows, ByPriority) { EXPECT_EQ(orders_hold<one_by_priority>(), pairs(58, 17)); }
TEST(OrderOfWindows, NewestFirst) {
  EXPECT_EQ(orders_hold<newest_first>(coordinations::one_each), 17);
}
/// All schedules that limit flights hang, except for at_most, whose order follows from the plan, so
/// that ranks which decide alone decide alike.
TEST(OrderOfWindows, WithoutCoordinationItHangs) {
  EXPECT_EQ(orders_matter<one_by_priority>(), 10);
  EXPECT_EQ(orders_matter<newest_first>(), 10);
}
/// One chunk at a time in an order that follows from the plan: ranks need not agree on it, but may.
TEST(OrderOfWindows, AtMostOne) {
  using means_and_servers = std::tuple<architecture::all_reduce<>, architecture::all_gather,
                                       architecture::sharded<>, architecture::parameter_server<>>;
  using alone = ordered<schedule::at_most, coordination::local, architecture::all_reduce<>>;
  static_assert(std::is_same_v<alone::by_default, coordination::local>);
  EXPECT_EQ((orders_hold<schedule::at_most, means_and_servers>()), pairs(16, 4));
}
TEST(OrderOfWindows, OfOneArchitectureAndThenAnother) {
  using turns = architecture::switch_at<architecture::all_reduce<>, architecture::local_sgd<>>;
  for (std::size_t which = 0; which < agreed_coordinations::size; ++which) {
    keeps_order_agreed_by<one_by_priority, turns>(which);
  }
  using alone = ordered<one_by_priority, coordination::local, turns>;
  hangs_without_a_leader<alone::strategy>(alone::options());
}
TEST(OrderOfWindows, OfBytes) {
  keeps_one_order<compose<coordination::learned, architecture::majority_vote, compression::sign,
                          schedule::by_priority>>(
      {.schedule = {.credit = 20, .rule = schedule::credit_rule::fits}});
}
TEST(OrderOfWindows, APieceThatNeverFitsIsRefused) {
  using strategy = compose<architecture::all_reduce<>, schedule::by_priority>;
  const engine_options<strategy> options{
      .schedule = {.credit = 4, .rule = schedule::credit_rule::fits}};
  EXPECT_THROW(agendas_after<strategy>(1, options), usage_error);
}
TEST(OrderOfWindows, GatheredAndLed) {
  keeps_one_order<compose<fusion::when_ready, architecture::all_reduce<>, schedule::by_priority,
                          partition::into>>(
      {.fusion = {.bytes = 40, .cycle = 1e-5},
       .partition = {.bytes = 8},
       .schedule = {.credit = 24, .rule = schedule::credit_rule::fits}});
}
TEST(OrderOfWindows, GatheredAndAtMostTwo) {
  keeps_one_order<
      compose<fusion::when_ready, architecture::all_reduce<>, schedule::at_most, partition::into>>(
      {.fusion = {.bytes = 40, .cycle = 1e-5},
       .partition = {.bytes = 8},
       .schedule = {.exchanges = 2}});
}
TEST(OrderOfWindows, GatheredAndNewestFirst) {
  keeps_one_order<
      compose<fusion::when_ready, architecture::all_reduce<>, newest_first, partition::into>>(
      {.fusion = {.bytes = 40, .cycle = 1e-5}, .partition = {.bytes = 8}});
}

}  // namespace
}  // namespace tutti::test
