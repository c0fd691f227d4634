// Ready orders differ on every rank and step, the window is one chunk, and nothing deadlocks; with
// every rank deciding for itself the same run hangs, so the law can fail.
#include <cstddef>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "support/training.hpp"
#include "tutti/architecture/all_gather.hpp"
#include "tutti/architecture/majority_vote.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/compression/sign.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/schedule/at_end.hpp"
#include "tutti/schedule/by_priority.hpp"
#include "tutti/schedule/in_order.hpp"

namespace tutti::test {
namespace {

using architecture::all_reduce;
using architecture::parameter_server;

constexpr int ranks = 3;
constexpr std::size_t tensors = 5;

arena small_model() {
  std::vector<arena::declaration> all;
  for (std::size_t i = 0; i < tensors; ++i) {
    all.push_back({"tensor" + std::to_string(i), i + 1});
  }
  return arena(all);
}

template <class Strategy>
task rank_of(transport::simulated& world, int steps, engine_options<Strategy> options,
             std::vector<std::uint64_t>& agendas) {
  arena memory = small_model();
  auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(), options);
  co_await engine.started();
  if (!engine.serves()) {
    for (int step = 0; step < steps; ++step) {
      for (std::size_t i = 0; i < tensors; ++i) {  // a forward pass
        co_await engine.arrival(tensor_id(i));
      }
      for (const tensor_id id : shuffled(tensors, world.rank(), step)) {
        co_await world.sleep(1e-6);
        engine.ready(id);
      }
    }
    for (std::size_t i = 0; i < tensors; ++i) {
      co_await engine.arrival(tensor_id(i));
    }
    agendas.push_back(engine.agenda());
  }
  co_await engine.close();
}

/// The agenda's hash on every worker, after `steps` steps.
template <class Strategy>
std::vector<std::uint64_t> agendas_after(int steps, engine_options<Strategy> options) {
  std::vector<std::uint64_t> agendas;
  transport::run_simulated(ranks + servers_in<Strategy>(options), transport::link{1.25e9, 5e-6},
                           [&](transport::simulated& world) {
                             return rank_of<Strategy>(world, steps, options, agendas);
                           });
  return agendas;
}

template <class Strategy>
void never_deadlocks(engine_options<Strategy> options = {}) {
  EXPECT_EQ(agendas_after<Strategy>(10'000, options).size(), std::size_t{ranks});
}

template <class Strategy>
void keeps_one_order(engine_options<Strategy> options = {}) {
  const auto agendas = agendas_after<Strategy>(10'000, options);
  ASSERT_EQ(agendas.size(), std::size_t{ranks});
  for (const std::uint64_t each : agendas) {
    EXPECT_EQ(each, agendas.front());
  }
}

template <class Strategy>
void hangs_without_a_leader(engine_options<Strategy> options) {
  options.run.decisions = decisions::by_every_rank;
  EXPECT_THROW(agendas_after<Strategy>(10'000, options), communication_error);
}

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
  hangs_without_a_leader<compose<all_reduce<>, schedule::by_priority>>({.schedule = one_chunk});
  hangs_without_a_leader<compose<architecture::all_gather, schedule::by_priority>>(
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
