// The rest of the grid of order_test.cpp: schedules whose order the plan knows, and every
// architecture without a leader.
#include <gtest/gtest.h>

#include "support/order.hpp"
#include "tutti/architecture/all_gather.hpp"
#include "tutti/architecture/delayed.hpp"
#include "tutti/architecture/local_sgd.hpp"
#include "tutti/architecture/majority_vote.hpp"
#include "tutti/architecture/model_averaging.hpp"
#include "tutti/architecture/pair_averaging.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/compression/sign.hpp"
#include "tutti/coordination/leader.hpp"
#include "tutti/coordination/learned.hpp"
#include "tutti/coordination/local.hpp"
#include "tutti/coordination/negotiated.hpp"
#include "tutti/fusion/when_ready.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/schedule/at_end.hpp"
#include "tutti/schedule/by_priority.hpp"
#include "tutti/schedule/in_order.hpp"
#include "tutti/schedule/split_phase.hpp"

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

constexpr schedule::by_priority::options one_chunk{.credit = 1};

TEST(OrderGrid, MeansOfTheLastStep) {
  using relaxed = architecture::delayed<architecture::all_reduce<>>;
  keeps_one_order<compose<relaxed, schedule::by_priority>>({.schedule = one_chunk});
  keeps_one_order<compose<coordination::learned, relaxed, schedule::by_priority>>(
      {.schedule = one_chunk});
  keeps_one_order<compose<coordination::negotiated, relaxed, schedule::by_priority>>(
      {.schedule = one_chunk});
  hangs_without_a_leader<compose<coordination::local, relaxed, schedule::by_priority>>(
      {.schedule = one_chunk});
}
TEST(OrderGrid, MeansOfModels) {
  keeps_one_order<compose<architecture::local_sgd<>, schedule::by_priority>>(
      {.schedule = one_chunk, .architecture = {.period = 3}});
  keeps_one_order<
      compose<coordination::learned, architecture::model_averaging<>, schedule::by_priority>>(
      {.schedule = one_chunk});
  hangs_without_a_leader<
      compose<coordination::local, architecture::local_sgd<>, schedule::by_priority>>(
      {.schedule = one_chunk});
  hangs_without_a_leader<
      compose<coordination::local, architecture::model_averaging<>, schedule::by_priority>>(
      {.schedule = one_chunk});
}
TEST(OrderGrid, HalvesOfAnExchange) {
  never_deadlocks<compose<architecture::all_reduce<>, schedule::split_phase>>();
  keeps_one_order<
      compose<coordination::leader, architecture::all_reduce<>, schedule::split_phase>>();
}
TEST(OrderGrid, ModelsOfPairsNeedNoOrder) {
  never_deadlocks<compose<architecture::pair_averaging, schedule::by_priority>>(
      {.schedule = one_chunk});
}

}  // namespace
}  // namespace tutti::test
