// Schedules that hold nothing back, over every architecture, and launches that are gathered as they
// become ready.
#include <gtest/gtest.h>

#include "support/order_laws.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/fusion/when_ready.hpp"

namespace tutti::test {
namespace {

TEST(Order, AsReady) { EXPECT_EQ((orders_hold<0, schedule::as_ready>()), 10); }
TEST(Order, SplitPhases) { EXPECT_EQ((orders_hold<4, schedule::split_phase>()), 4); }
TEST(Order, SplitPhasesThatAreLed) {
  keeps_one_order<
      compose<coordination::leader, architecture::all_reduce<>, schedule::split_phase>>();
}
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
