// Ready orders differ on every rank and step, the window is one chunk, and nothing deadlocks; with
// every rank deciding for itself the same run hangs, so the law can fail.
#include "support/order.hpp"

#include <cstddef>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tutti/architecture/all_gather.hpp"
#include "tutti/architecture/majority_vote.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/compression/sign.hpp"
#include "tutti/coordination/local.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/schedule/at_end.hpp"
#include "tutti/schedule/by_priority.hpp"
#include "tutti/schedule/in_order.hpp"

namespace tutti::test {
namespace {

using architecture::all_reduce;
using architecture::parameter_server;

constexpr schedule::by_priority::options one_chunk{.credit = 1};

TEST(Order, AsReady) {
  never_deadlocks<compose<all_reduce<>, fusion::up_to>>({.fusion = {.bytes = 16}});
  never_deadlocks<compose<architecture::all_gather>>();
  never_deadlocks<compose<architecture::reduce_scatter_all_gather>>();
  never_deadlocks<compose<architecture::majority_vote, compression::sign>>();
  never_deadlocks<compose<parameter_server<>>>();
}
TEST(Order, AtTheEnd) {
  keeps_one_order<compose<all_reduce<>, schedule::at_end>>();
  keeps_one_order<compose<parameter_server<>, schedule::at_end>>();
}
TEST(Order, InOrder) {
  keeps_one_order<compose<all_reduce<>, schedule::in_order>>();
  keeps_one_order<compose<architecture::majority_vote, compression::sign, schedule::in_order>>();
}
TEST(Order, ByPriorityWithAWindowOfOneChunk) {
  keeps_one_order<compose<all_reduce<>, schedule::by_priority, partition::into>>(
      {.partition = {.bytes = 8}, .schedule = one_chunk});
  keeps_one_order<compose<architecture::all_gather, schedule::by_priority>>(
      {.schedule = one_chunk});
  keeps_one_order<compose<architecture::reduce_scatter_all_gather, schedule::by_priority>>(
      {.schedule = one_chunk});
  keeps_one_order<compose<architecture::majority_vote, compression::sign, schedule::by_priority>>(
      {.schedule = {.credit = 20, .rule = schedule::credit_rule::fits}});
}
TEST(Order, ServersNeedNoLeader) {
  never_deadlocks<compose<parameter_server<>, schedule::by_priority, partition::into>>(
      {.partition = {.bytes = 8}, .schedule = one_chunk, .architecture = {.servers = 2}});
  never_deadlocks<compose<parameter_server<consistency::asynchronous, updated_by::servers>,
                          schedule::by_priority>>({.schedule = one_chunk});
}
TEST(Order, WithoutALeaderItHangs) {
  hangs_without_a_leader<compose<all_reduce<>, schedule::by_priority, coordination::local>>(
      {.schedule = one_chunk});
  hangs_without_a_leader<
      compose<architecture::all_gather, schedule::by_priority, coordination::local>>(
      {.schedule = one_chunk});
}
TEST(Order, APieceThatNeverFitsIsRefused) {
  using strategy = compose<all_reduce<>, schedule::by_priority>;
  const engine_options<strategy> options{
      .schedule = {.credit = 4, .rule = schedule::credit_rule::fits}};
  EXPECT_THROW(agendas_after<strategy>(1, options), usage_error);
}

}  // namespace
}  // namespace tutti::test
