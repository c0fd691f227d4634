// The rest of the grid of order_test.cpp: schedules whose order the plan knows, and every
// architecture without a leader.
#include <gtest/gtest.h>

#include "support/order.hpp"
#include "tutti/architecture/all_gather.hpp"
#include "tutti/architecture/majority_vote.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/compression/sign.hpp"
#include "tutti/coordination/learned.hpp"
#include "tutti/coordination/local.hpp"
#include "tutti/coordination/negotiated.hpp"
#include "tutti/fusion/when_ready.hpp"
#include "tutti/partition/into.hpp"
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
TEST(OrderGrid, Negotiated) {
  using coordination::negotiated;
  keeps_one_order<compose<negotiated, reduce_scatter_all_gather, schedule::by_priority>>(
      {.schedule = {.credit = 1}});
  keeps_one_order<compose<negotiated, fusion::when_ready, all_gather>>(
      {.fusion = {.bytes = 40, .cycle = 1e-5},
       .coordination = {.by = coordination::identity::name, .cache = 2}});
}
TEST(OrderGrid, Learned) {
  using coordination::learned;
  keeps_one_order<compose<learned, majority_vote, compression::sign, schedule::by_priority>>(
      {.schedule = {.credit = 20, .rule = schedule::credit_rule::fits}});
}
TEST(OrderGrid, GatheredAndLed) {
  keeps_one_order<compose<fusion::when_ready, architecture::all_reduce<>, schedule::by_priority,
                          partition::into>>(
      {.fusion = {.bytes = 40, .cycle = 1e-5},
       .partition = {.bytes = 8},
       .schedule = {.credit = 24, .rule = schedule::credit_rule::fits}});
}
TEST(OrderGrid, WithoutALeaderItHangs) {
  hangs_without_a_leader<
      compose<reduce_scatter_all_gather, schedule::by_priority, coordination::local>>(
      {.schedule = {.credit = 1}});
  hangs_without_a_leader<
      compose<majority_vote, compression::sign, schedule::by_priority, coordination::local>>(
      {.schedule = {.credit = 1}});
}

}  // namespace
}  // namespace tutti::test
