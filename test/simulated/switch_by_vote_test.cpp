// The vote by which ranks change their exchange when a link becomes slower.
#include "tutti/core/switch_by_vote.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "support/training.hpp"
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/collective/by_graph.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/monitor/none.hpp"
#include "tutti/monitor/tee.hpp"
#include "tutti/monitor/throughput.hpp"
#include "tutti/transport/network.hpp"
#include "tutti/transport/simulated.hpp"

namespace tutti::test {
namespace {

using strategy = compose<architecture::all_reduce<collective::by_graph>>;
using options = engine_options<strategy>;
using collective::topology;

options over(topology how) { return {.architecture = {.topology = how}}; }

constexpr int steps = 40;
constexpr std::uint64_t window = 5;
constexpr seconds computing = 1e-3;
constexpr transport::link nic{1e8, 1e-6};

TEST(Throughput, BeginsAgainWithAnotherPlan) {
  plan small;
  small.hash = 1;
  small.chunks.resize(1);
  small.chunks[0].elements = 250;
  plan large = small;
  large.hash = 2;
  large.chunks.resize(3, large.chunks[0]);
  monitor::throughput seen;
  const auto finish = [&seen](std::uint32_t chunk) {
    seen.record(event::started, chunk, 1.0);
    seen.record(event::finished, chunk, 3.0);
  };
  finish(2);
  seen.replanned();
  EXPECT_EQ(seen.take(small), 0) << "the large one has come and gone";
  finish(0);
  EXPECT_EQ(seen.take(small), 500);
  finish(0);
  seen.replanned();
  EXPECT_EQ(seen.take(large), 0);
  finish(2);
  EXPECT_EQ(seen.take(large), 500);
}

/// Trains a step under one plan and a step under another. Returns the throughput seen after both.
task of_two_plans(transport::simulated& world, std::size_t first, std::size_t second,
                  std::vector<double>& seen) {
  using fused = compose<architecture::all_reduce<collective::by_graph>, fusion::up_to>;
  engine_options<fused> set;
  set.fusion.bytes = first;
  arena memory = model_of(world.rank());
  monitor::tee<monitor::none, monitor::throughput> watches;
  auto engine = make_engine<fused>(world, memory.tensors(), optimizer_of(), set, watches);
  co_await engine.started();
  for (int step = 0; step < 2; ++step) {
    co_await world.sleep(computing);
    backward(memory, world.rank(), step);
    for (std::size_t id = memory.tensors().size(); id-- > 0;) {
      engine.ready(tensor_id(id));
    }
    for (std::size_t id = 0; id < memory.tensors().size(); ++id) {
      co_await engine.arrival(tensor_id(id));
    }
    if (step == 0) {
      set.fusion.bytes = second;
      task replanning = engine.replanned(set);
      co_await replanning;
    }
  }
  seen[at(world.rank())] = engine.observed().second.take(engine.planned());
  co_await engine.close();
}
std::vector<double> seen_of_two_plans(std::size_t first, std::size_t second) {
  std::vector<double> seen(3);
  transport::run_simulated(3, nic, [&](transport::simulated& world) {
    return of_two_plans(world, first, second, seen);
  });
  return seen;
}
/// What chunks of an earlier plan took is not counted as the time of those that have their numbers
/// now.
TEST(Throughput, IsOfThePresentPlanAlone) {
  constexpr std::size_t fine = 1;
  constexpr std::size_t coarse = 1'000'000'000;
  const auto near = [](double a, double b) { return std::abs(a - b) < 1e-9 * b; };
  EXPECT_TRUE(
      std::ranges::equal(seen_of_two_plans(coarse, fine), seen_of_two_plans(fine, fine), near));
  EXPECT_TRUE(
      std::ranges::equal(seen_of_two_plans(fine, coarse), seen_of_two_plans(coarse, coarse), near));
}

TEST(SwitchByVote, ARankVotesBelowFourFifthsOfItsFirstWindow) {
  interference watched;
  EXPECT_FALSE(watched.compares(0)) << "nothing was exchanged";
  EXPECT_FALSE(watched.compares(100)) << "the reference";
  EXPECT_FALSE(watched.votes());
  for (const auto& [throughput, votes] : std::vector<std::pair<double, bool>>{
           {80.001, false}, {79.999, true}, {500, false}, {0, true}}) {
    EXPECT_TRUE(watched.compares(throughput));
    EXPECT_EQ(watched.votes(), votes) << throughput;
  }
  watched.forget();
  EXPECT_FALSE(watched.compares(10));
  EXPECT_EQ(watched.reference(), 10);
}

TEST(SwitchByVote, MoreThanHalfOfTheWorkersDecide) {
  const std::vector<int> needed{1, 2, 2, 3, 3, 4, 4, 5};  // votes needed among 1 to 8 workers
  for (int workers = 1; workers <= 8; ++workers) {
    for (int votes = 0; votes <= workers; ++votes) {
      EXPECT_EQ(interference::passes(votes, workers),
                votes >= needed[static_cast<std::size_t>(workers - 1)])
          << votes << " of " << workers;
    }
  }
}

TEST(SwitchByVote, ThroughputIsBytesOverTheTimeFromTheFirstStartToTheLastEnd) {
  plan of;
  of.chunks.resize(2);
  of.chunks[0].elements = 100;
  of.chunks[1].elements = 25;
  monitor::throughput seen;
  EXPECT_EQ(seen.take(of), 0);
  seen.record(event::started, 1, 2.0);
  seen.record(event::started, 0, 2.5);
  seen.record(event::finished, 0, 4.0);
  seen.record(event::finished, 1, 3.0);
  seen.record(event::started, 1, 5.0);
  seen.record(event::finished, 1, 6.0);
  EXPECT_DOUBLE_EQ(seen.take(of), 600.0 / 4.0);
  EXPECT_EQ(seen.take(of), 0) << "a window begins again";
}

struct run {
  std::vector<std::vector<float>> parameters;
  std::vector<std::uint64_t> bytes;     ///< sent, by rank
  std::vector<std::uint64_t> switched;  ///< the step after which each rank switched
  std::vector<seconds> ends = std::vector<seconds>(steps);  ///< of rank 0's steps

  explicit run(int ranks) : parameters(at(ranks)), switched(at(ranks)) {}
};

task rank_of(transport::simulated& world, const std::vector<double>& thresholds, run& made) {
  arena memory = model_of(world.rank());
  auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of(), over(topology::star),
                                      monitor::throughput());
  co_await engine.started();
  switch_by_vote<options> by_vote(window, {over(topology::ring)},
                                  interference(thresholds[at(world.rank())]));
  for (int step = 0; step < steps; ++step) {
    co_await world.sleep(computing);
    std::size_t element = 0;
    for (float& each : memory.gradients()) {
      each = gradient_of_few_digits(world.rank(), step, element++);
    }
    for (std::size_t id = memory.tensors().size(); id-- > 0;) {
      engine.ready(tensor_id(id));
    }
    for (std::size_t id = 0; id < memory.tensors().size(); ++id) {
      co_await engine.arrival(tensor_id(id));
    }
    if (world.rank() == 0) {
      made.ends[static_cast<std::size_t>(step)] = world.now();
    }
    task watching = by_vote.stepped(engine);
    co_await watching;
  }
  made.parameters[at(world.rank())].assign(memory.parameters().begin(), memory.parameters().end());
  made.switched[at(world.rank())] = by_vote.last_switch();
  co_await engine.close();
}

/// Trains on five hosts, the first of which has a tenth of its bandwidth from `throttled` on.
run trained_with(seconds throttled, std::vector<double> thresholds = std::vector<double>(5, 0.8)) {
  transport::network over_nics(5, nic);
  EXPECT_THROW(over_nics.change_nic(throttled, 5, nic), usage_error);
  over_nics.change_nic(throttled, 0, {nic.bytes_per_second / 10, nic.latency});
  run made(5);
  transport::run_simulated(
      over_nics, [&](transport::simulated& world) { return rank_of(world, thresholds, made); });
  return made;
}
constexpr seconds never = 1e6;

/// Rank 0, the star's root, sends and receives the model four times a step. On the ring the model
/// passes a NIC once in each direction, so a narrow NIC costs a quarter as much.
TEST(SwitchByVote, AThrottledLinkIsLeftWithinAWindowAndNoSumIsLost) {
  const run undisturbed = trained_with(never);
  EXPECT_EQ(undisturbed.switched, std::vector<std::uint64_t>(5, 0));
  // In the middle of the fourth window.
  const run throttled = trained_with(undisturbed.ends[3 * window + 2]);
  for (const std::uint64_t step : throttled.switched) {
    EXPECT_EQ(step, 4 * window) << "at the end of that window, on every rank alike";
  }
  const auto expected = trained(5, steps, {}, gradient_of_few_digits);
  for (const run& each : {undisturbed, throttled}) {
    for (const auto& parameters : each.parameters) {
      EXPECT_EQ(parameters, expected) << "sums of few digits are exact in any order";
    }
  }
  const auto takes = [&](const run& its, std::size_t step) {
    return its.ends[step] - its.ends[step - 1];
  };
  const seconds before = takes(throttled, 3 * window);
  const seconds slow = takes(throttled, 4 * window - 1);
  const seconds after = takes(throttled, steps - 1);
  EXPECT_GT(slow, 5 * before);
  EXPECT_LT(after, slow / 2);
}

/// All workers see the slowdown, but only some have a threshold at which they vote.
TEST(SwitchByVote, AMinorityDecidesNothing) {
  const seconds throttled = trained_with(never).ends[3 * window + 2];
  EXPECT_EQ(trained_with(throttled, {0.8, 0, 0.8, 0, 0}).switched,
            std::vector<std::uint64_t>(5, 0));
  EXPECT_EQ(trained_with(throttled, {0.8, 0, 0.8, 0, 0.8}).switched,
            std::vector<std::uint64_t>(5, 4 * window));
}

/// On threads every window is slower than the unreachable reference. A switch does not change other
/// options of the engine: a step stays one of two passes.
TEST(SwitchByVote, OnThreadsEveryRankSwitchesAfterTheSameStep) {
  constexpr double always = 1e9;
  std::vector<std::vector<std::uint64_t>> switches(3);
  transport::run_ranks(3, [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    options own = over(topology::star);
    own.run.accumulation = 2;
    auto engine =
        make_engine<strategy>(world, memory.tensors(), optimizer_of(), own, monitor::throughput());
    switch_by_vote<options> by_vote(2, {over(topology::clique), over(topology::ring)},
                                    interference(always));
    for (int step = 0; step < 12; ++step) {
      for (const float passes : {1.0f, 2.0f}) {
        engine.wait();
        std::size_t element = 0;
        for (float& each : memory.gradients()) {
          each = passes * gradient_of_few_digits(world.rank(), step, element++);
        }
        for (std::size_t id = memory.tensors().size(); id-- > 0;) {
          engine.ready(tensor_id(id));
        }
      }
      by_vote.after_step(engine);
      switches[at(world.rank())].push_back(by_vote.switches());
    }
    engine.wait();
    EXPECT_TRUE(
        std::ranges::equal(memory.parameters(), trained(3, 12, {}, gradient_of_few_digits)));
  });
  for (const auto& each : switches) {
    // One window for a reference, one for a vote, and again.
    EXPECT_EQ(each, (std::vector<std::uint64_t>{0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2}));
  }
  EXPECT_THROW(switch_by_vote<options>(0, {}), usage_error);
}

}  // namespace
}  // namespace tutti::test
