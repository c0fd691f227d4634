// The laws of order over architectures that are run under fewer schedules.
#include <gtest/gtest.h>

#include "support/order_laws.hpp"

namespace tutti::test {
namespace {

TEST(OrderSampled, AsReadyAlone) {
  EXPECT_EQ((orders_hold_alone<schedule::as_ready, sampled_architectures>()), 14);
}
TEST(OrderSampled, AtTheEndAlone) {
  EXPECT_EQ((orders_hold_alone<schedule::at_end, sampled_architectures>()), 14);
}
TEST(OrderSampled, InOrderAlone) {
  EXPECT_EQ((orders_hold_alone<schedule::in_order, sampled_architectures>()), 14);
}
TEST(OrderSampled, ByPriority) {
  EXPECT_EQ((orders_hold<one_by_priority, sampled_architectures>()), pairs(46, 14));
}
TEST(OrderSampled, NewestFirst) {
  EXPECT_EQ((orders_hold<newest_first, sampled_architectures>(coordinations::one_each)), 14);
}
TEST(OrderSampled, WithoutCoordinationItHangs) {
  EXPECT_EQ((orders_matter<one_by_priority, sampled_architectures>()), 10);
  EXPECT_EQ((orders_matter<newest_first, sampled_architectures>()), 10);
}

}  // namespace
}  // namespace tutti::test
