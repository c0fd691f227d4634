// Schedules that hold nothing back, over every architecture, and launches that are gathered as they
// become ready.
#include <gtest/gtest.h>

#include "support/order_laws.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/fusion/when_ready.hpp"

namespace tutti::test {
namespace {

TEST(Order, AsReady) { EXPECT_EQ(orders_hold<schedule::as_ready>(), 44); }
TEST(Order, AtTheEnd) { EXPECT_EQ(orders_hold<schedule::at_end>(), 44); }
TEST(Order, InOrder) { EXPECT_EQ(orders_hold<schedule::in_order>(), 44); }
TEST(Order, OfBuckets) {
  never_deadlocks<compose<architecture::all_reduce<>, fusion::up_to>>({.fusion = {.bytes = 16}});
}
TEST(Order, GatheredAndNegotiated) {
  keeps_one_order<compose<coordination::negotiated, fusion::when_ready, architecture::all_gather>>(
      {.fusion = {.bytes = 40, .cycle = 1e-5},
       .coordination = {.by = coordination::identity::name, .cache = 2}});
}

}  // namespace
}  // namespace tutti::test
