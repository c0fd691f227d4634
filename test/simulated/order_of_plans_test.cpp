// Schedules whose order the plan knows, over every architecture.
#include <gtest/gtest.h>

#include "support/order_laws.hpp"

namespace tutti::test {
namespace {

TEST(OrderOfPlans, AtTheEnd) { EXPECT_EQ((orders_hold<1, schedule::at_end>()), 10); }
TEST(OrderOfPlans, InOrder) { EXPECT_EQ((orders_hold<2, schedule::in_order>()), 10); }

}  // namespace
}  // namespace tutti::test
