// Exchanges in two halves, over every architecture that has them.
#include <gtest/gtest.h>

#include "support/order_laws.hpp"

namespace tutti::test {
namespace {

TEST(OrderOfHalves, SplitPhases) { EXPECT_EQ(orders_hold<schedule::split_phase>(), 20); }

}  // namespace
}  // namespace tutti::test
