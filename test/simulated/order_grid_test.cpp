// The rest of the grid of order_test.cpp: schedules whose order the plan knows, and every
// architecture without a leader.
#include <gtest/gtest.h>

#include "support/order.hpp"
#include "tutti/architecture/all_gather.hpp"
#include "tutti/architecture/majority_vote.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/compression/sign.hpp"
#include "tutti/schedule/at_end.hpp"
#include "tutti/schedule/by_priority.hpp"
#include "tutti/schedule/in_order.hpp"

namespace tutti::test {
namespace {

using architecture::all_gather;
using architecture::majority_vote;
using architecture::reduce_scatter_all_gather;

TEST(OrderGrid, AtTheEnd) {
  keeps_one_order<compose<all_gather, schedule::at_end>>();
  keeps_one_order<compose<reduce_scatter_all_gather, schedule::at_end>>();
  keeps_one_order<compose<majority_vote, compression::sign, schedule::at_end>>();
}
TEST(OrderGrid, InOrder) {
  keeps_one_order<compose<all_gather, schedule::in_order>>();
  keeps_one_order<compose<reduce_scatter_all_gather, schedule::in_order>>();
  keeps_one_order<compose<architecture::parameter_server<>, schedule::in_order>>();
}
TEST(OrderGrid, WithoutALeaderItHangs) {
  hangs_without_a_leader<compose<reduce_scatter_all_gather, schedule::by_priority>>(
      {.schedule = {.credit = 1}});
  hangs_without_a_leader<compose<majority_vote, compression::sign, schedule::by_priority>>(
      {.schedule = {.credit = 1}});
}

}  // namespace
}  // namespace tutti::test
