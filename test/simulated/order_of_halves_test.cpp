// Laws of order for exchanges in two halves, over every architecture that has them.
#include <gtest/gtest.h>
#include <tuple>

#include "support/order_laws.hpp"

namespace tutti::test {
namespace {

TEST(OrderOfHalves, SplitPhases) { EXPECT_EQ(orders_hold<schedule::split_phase>(), pairs(20, 5)); }
/// The other sampled architectures of two halves exchange as all_reduce does.
TEST(OrderOfHalves, SplitPhasesOfOwners) {
  using owners = std::tuple<architecture::sharded_by_owners>;
  EXPECT_EQ((orders_hold<schedule::split_phase, owners>()), pairs(4, 1));
}

}  // namespace
}  // namespace tutti::test
