// Schedules that hold chunks back, over every architecture: nothing deadlocks; with every rank
// deciding for itself the same run hangs, so the law can fail.
#include <cstddef>
#include <gtest/gtest.h>
#include <type_traits>

#include "support/order_laws.hpp"
#include "tutti/architecture/switch_at.hpp"
#include "tutti/base/error.hpp"
#include "tutti/fusion/when_ready.hpp"

namespace tutti::test {
namespace {

TEST(OrderOfWindows, ByPriority) { EXPECT_EQ(orders_hold<schedule::by_priority>(), 58); }
TEST(OrderOfWindows, WithoutCoordinationItHangs) {
  EXPECT_EQ(orders_matter<schedule::by_priority>(), 10);
}
/// One at a time, in an order that follows from the plan: ranks need nobody to agree, and may.
TEST(OrderOfWindows, AtMostOne) {
  using alone = ordered<schedule::at_most, coordination::local, architecture::all_reduce<>>;
  static_assert(std::is_same_v<alone::by_default, coordination::local>);
  keeps_one_order<alone::strategy>(alone::options());
  for (std::size_t which = 0; which < agreed_coordinations::size; ++which) {
    keeps_order_agreed_by<schedule::at_most, architecture::sharded<>>(which);
    keeps_order_agreed_by<schedule::at_most, architecture::parameter_server<>>(which);
  }
}
TEST(OrderOfWindows, OfOneArchitectureAndThenAnother) {
  using turns = architecture::switch_at<architecture::all_reduce<>, architecture::local_sgd<>>;
  for (std::size_t which = 0; which < agreed_coordinations::size; ++which) {
    keeps_order_agreed_by<schedule::by_priority, turns>(which);
  }
  using alone = ordered<schedule::by_priority, coordination::local, turns>;
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

}  // namespace
}  // namespace tutti::test
