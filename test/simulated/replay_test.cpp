// The time that a replayed model takes on a modelled network, compared with results worked out by
// hand.
#include "tutti/core/replay.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <numbers>
#include <numeric>
#include <string>
#include <vector>

#include "tutti/architecture/all_gather.hpp"
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/architecture/independent.hpp"
#include "tutti/architecture/model_averaging.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/compression/sign.hpp"
#include "tutti/coordination/leader.hpp"
#include "tutti/coordination/local.hpp"
#include "tutti/coordination/negotiated.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/all.hpp"
#include "tutti/fusion/when_ready.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/schedule/at_end.hpp"
#include "tutti/schedule/by_priority.hpp"
#include "tutti/transport/simulated.hpp"

namespace tutti::test {
namespace {

using transport::device;
using transport::link;
using transport::network;
using transport::simulated;

constexpr link nic{1e9, 1e-5};
constexpr std::size_t elements = 1'000'000;  // 4 ms of the NIC

std::vector<computation> model(std::size_t tensors, seconds forward, seconds backward) {
  const auto n = static_cast<double>(tensors);
  return std::vector<computation>(tensors,
                                  {"tensor", elements / tensors, forward / n, backward / n});
}

template <class Strategy>
replayed run(const network& over, std::vector<computation> what, engine_options<Strategy> set = {},
             device each = {}) {
  replay<Strategy> job(std::move(what), set, payloads::counted, {.iterations = 4, .warmup = 2});
  run_simulated(over, each, [&job](simulated& world) { return job(world); });
  return job.result();
}

template <class... Policies>
using over_ring = compose<architecture::all_reduce<collective::ring>, Policies...>;

TEST(Replay, WithoutOverlapComputeAndTheRingAddUp) {
  for (const int ranks : {1, 2, 3, 4, 5}) {
    const auto got =
        run<over_ring<fusion::all, schedule::at_end>>(network(ranks, nic), model(8, 3e-3, 6e-3));
    const double p = ranks;
    const auto n = static_cast<std::size_t>(ranks);
    const double parts = static_cast<double>((elements + n - 1) / n * 4) / 1e9;
    ASSERT_EQ(got.iterations.size(), 4U);
    for (const seconds each : got.iterations) {
      EXPECT_NEAR(each, 9e-3 + 2 * (p - 1) * (parts + nic.latency), 1e-7) << ranks;
    }
    EXPECT_NEAR(got.busiest_nic, 2 * (p - 1) / p * 4e6, 1);
  }
}

TEST(Replay, TheDeviceIsChargedForEncodingAddingAndScaling) {
  const auto got = run<over_ring<fusion::all>>(network(2, nic), model(1, 0, 1e-3), {}, {1e10});
  // Half of the floats are read, added and written; then all are scaled.
  const double added = 3 * 2e6 / 1e10;
  const double scaled = 2 * 4e6 / 1e10;
  EXPECT_NEAR(got.quantile(0.5), 1e-3 + 2 * (2e-3 + nic.latency) + added + scaled, 1e-7);
}

/// The first messages of a launch that rank 0 decides keep its NIC busy for 2 ms. The others hear
/// of the launch before.
TEST(Replay, AnAgreedLaunchStartsEverywhereBeforeItsDataIsOnTheWay) {
  const auto taken = [](auto how) {
    return run<over_ring<fusion::all, decltype(how)>>(network(2, nic), model(1, 0, 1e-3))
        .quantile(0.5);
  };
  const seconds alone = taken(coordination::local{});
  EXPECT_NEAR(alone, 1e-3 + 2 * (2e-3 + nic.latency), 1e-7);
  EXPECT_NEAR(taken(coordination::leader{}), alone, 2.1 * nic.latency);
  EXPECT_NEAR(taken(coordination::negotiated{}), alone, 3.1 * nic.latency);
}

TEST(Replay, JitterIsSeededAndMakesAllWaitForTheSlowest) {
  using strategy = over_ring<fusion::all, schedule::at_end>;
  const auto jittered = [](int ranks, double jitter, std::uint64_t seed) {
    replay<strategy> job(
        model(4, 3e-3, 6e-3), {}, payloads::counted,
        {.iterations = 200, .warmup = 2, .of = {}, .jitter = jitter, .slowdown = 0, .seed = seed});
    run_simulated(network(ranks, {1e15, 0}), [&job](simulated& world) { return job(world); });
    return job.result().iterations;
  };
  EXPECT_EQ(jittered(3, 0.1, 7), jittered(3, 0.1, 7));
  EXPECT_NE(jittered(3, 0.1, 7), jittered(3, 0.1, 8));
  const auto mean = [](const std::vector<seconds>& all) {
    return std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
  };
  // One rank waits for no other: the mean of |z| is sqrt(2 / pi).
  EXPECT_NEAR(mean(jittered(1, 0.1, 1)), 9e-3 * (1 + 0.1 * std::sqrt(2 / std::numbers::pi)), 9e-5);
  EXPECT_GT(mean(jittered(8, 0.1, 1)), mean(jittered(1, 0.1, 1)) * 1.03);
  for (const seconds each : jittered(4, 0.1, 1)) {
    EXPECT_GE(each, 9e-3);
  }
}

TEST(Replay, ComputingBesideCommunicationIsSlower) {
  const auto slowed = [](auto strategy, double slowdown) {
    replay<decltype(strategy)> job(
        model(100, 0, 100e-3), {}, payloads::counted,
        {.iterations = 2, .warmup = 1, .of = {}, .jitter = 0, .slowdown = slowdown, .seed = 1});
    run_simulated(network(2, {1e8, 0}), [&job](simulated& world) { return job(world); });
    return job.result().quantile(0.5);
  };
  // Without overlap the 40 ms of communication slow nothing down. With overlap, two thirds of the
  // work is done during each tensor's 0.4 ms that would be done without it: 99 times 0.133 ms more.
  EXPECT_NEAR(slowed(over_ring<fusion::all, schedule::at_end>{}, 0.5), 140e-3, 1e-6);
  EXPECT_NEAR(slowed(over_ring<>{}, 0), 100e-3 + 0.4e-3, 1e-6);
  EXPECT_NEAR(slowed(over_ring<>{}, 0.5), 100.4e-3 + 99 * 0.4e-3 / 3, 99 * 0.05e-3);
  // With an extreme slowdown: 99 times 0.4 ms more, in which almost nothing is computed.
  EXPECT_NEAR(slowed(over_ring<>{}, 100), 100.4e-3 + 99 * 0.4e-3 * 100 / 101, 99 * 0.05e-3);
  EXPECT_THROW(slowed(over_ring<>{}, 101), usage_error);
}

TEST(Replay, CrossingTheBarrierHidesCommunicationBehindBothPasses) {
  // 10 ms of the NIC: more than the time after the first gradient, and less than both passes take.
  const network over(2, {4e8, 1e-5});
  const auto compute = model(10, 6e-3, 6e-3);
  const auto barrier = run<over_ring<>>(over, compute).quantile(0.5);
  engine_options<over_ring<partition::into, schedule::by_priority>> set;
  set.partition.bytes = 100'000;
  set.schedule.credit = 400'000;
  const auto crossing =
      run<over_ring<partition::into, schedule::by_priority>>(over, compute, set).quantile(0.5);
  const double first_gradient = 6e-4;
  const double exposed = first_gradient + 10e-3 - 6e-3;
  EXPECT_NEAR(barrier, 12e-3 + exposed, 20 * 1e-5);  // and 20 latencies
  EXPECT_LE(crossing, 12e-3 + exposed / 2);
  EXPECT_GE(crossing, 12e-3);
}

TEST(Replay, HalfTheLinkDoublesWhatIsExposed) {
  const auto exposed = [](double rate) {
    return run<over_ring<fusion::all>>(network(4, {rate, 0}), model(1, 1e-3, 2e-3)).quantile(0.5) -
           3e-3;
  };
  EXPECT_NEAR(exposed(5e8) / exposed(1e9), 2, 1e-6);
}

using served = compose<architecture::parameter_server<>, partition::into, schedule::by_priority>;

TEST(Replay, OneServerIsTheBottleneckAndManyAreNot) {
  const auto step = [](int servers, link of_server) {
    network over(4 + servers, {1.25e8, 0});
    for (int rank = 4; rank < 4 + servers; ++rank) {
      over.isolate(rank, of_server);
    }
    engine_options<served> set;
    set.partition.bytes = 1 << 16;
    set.schedule.credit = 0;
    set.architecture.servers = servers;
    return run<served>(over, model(100, 0, 1e-6), set);
  };
  const double up = 4e6 / 1.25e8;
  EXPECT_NEAR(step(1, {1.25e8, 0}).quantile(0.5), 4 * up, 0.05 * 4 * up);
  EXPECT_NEAR(step(4, {1.25e8, 0}).quantile(0.5), up, 0.10 * up);
  EXPECT_NEAR(step(1, {6.25e7, 0}).quantile(0.5), 8 * up, 0.05 * 8 * up) << "incast";
  EXPECT_EQ(step(1, {1.25e8, 0}).busiest_nic, 4 * 4e6);
  EXPECT_EQ(step(4, {1.25e8, 0}).busiest_nic, 4e6);
}

/// Worker 0 has the server on its own host; the other worker's gradient and parameters pass a NIC.
/// The samples of both workers count.
TEST(Replay, WorkersThatKeepNoStepCountByTheirPace) {
  using apart =
      compose<architecture::parameter_server<consistency::asynchronous, updated_by::servers>>;
  network over(3, nic);
  over.join(2, 0);
  const auto got = run<apart>(over, model(1, 3e-3, 6e-3));
  const seconds near_it = 9e-3;
  const seconds far = 9e-3 + 2 * (4e-3 + nic.latency);
  EXPECT_NEAR(got.iterations_per_second, 1 / near_it + 1 / far, 1e-3);
  EXPECT_NEAR(got.mean(), 2 / (1 / near_it + 1 / far), 1e-7);
  EXPECT_EQ(got.iterations.size(), 4U);
}

/// The quick worker ends an iteration every second and the slow one every four. While the slow
/// worker warms up and then measures its two iterations, the quick one continues.
TEST(Replay, WorkersThatWaitForNobodyMeasureInOneWindow) {
  detail::window_progress both{2};
  detail::replay_window quick(1, 2, both);
  detail::replay_window slow(1, 2, both);
  for (int now = 1; now <= 16; ++now) {
    EXPECT_FALSE(quick.is_over()) << now;
    EXPECT_EQ(quick.is_open(), now > 8) << "from when both have made two iterations";
    EXPECT_EQ(quick.counts(), now > 8 && now <= 10);
    if (now % 4 == 0) {
      slow.end_iteration(now);
    }
    quick.end_iteration(now);
  }
  EXPECT_TRUE(quick.is_over() && slow.is_over());
  EXPECT_EQ(slow.iterations(), (std::vector<seconds>{4, 4}));
  EXPECT_EQ(quick.iterations().size(), 2U);
  EXPECT_DOUBLE_EQ(pace_of(quick.iterations()), 1);
  detail::window_progress far_apart{2};
  detail::replay_window quickest(1, 2, far_apart);
  int made = 0;
  for (; !quickest.is_over(); ++made) {
    quickest.end_iteration(made);
  }
  EXPECT_EQ(made, 40) << "ten times as many at most";
}

/// Servers on n workers' hosts and on k others take between a ring's time and that of one payload.
/// Without a window a host would send all its pushes before the first answer of its server.
TEST(Replay, TheOptimalSplitTakesAsLongAsItsFormulaSays) {
  for (const int n : {1, 2, 3, 4, 5}) {
    for (int k = 0; k <= n; ++k) {
      network over(2 * n + k, {1.25e8, 0});
      for (int i = 0; i < n; ++i) {
        over.join(n + k + i, i);
      }
      engine_options<served> set;
      set.partition.bytes = 1 << 13;
      set.schedule.credit = 1 << 16;
      set.architecture = {.servers = n + k, .placed_by = architecture::placed_by::optimal_split};
      const double taken = run<served>(over, model(100, 0, 1e-6), set).quantile(0.5);
      const double optimum = n == 1 ? 0 : 2 * n * (n - 1) * 0.032 / (n * n + k * n - 2 * k);
      EXPECT_LE(taken, 1.05 * optimum + 2e-6) << n << " workers and " << k << " others";
      EXPECT_GE(taken, optimum) << n << " workers and " << k << " others";
    }
  }
}

/// By noise, a worker that trains alone moves away by the root of its steps, less its share of the
/// mean of all. A worker that moves a share of the way to the mean forgets old steps.
TEST(Replay, SaysHowFarModelsDriftApart) {
  const auto apart = []<class Strategy>(int ranks, engine_options<Strategy> set) {
    replay<Strategy> job(model(3, 3e-3, 6e-3), set, payloads::drifting,
                         {.iterations = 4, .warmup = 2});
    run_simulated(network(ranks, nic), {}, [&job](simulated& world) { return job(world); });
    return job.result().consensus.value();
  };
  for (const int ranks : {1, 2, 3, 4, 5}) {
    const double unlike = 1 - 1.0 / ranks;
    double alone = 0;
    double kept = 0;
    for (int before = 3; before < 7; ++before) {  // steps taken before each measured iteration
      alone += before * unlike / 4;
      for (int step = 0; step < before; ++step) {
        kept += std::pow(0.25, step) * unlike / 4;
      }
    }
    EXPECT_NEAR(apart(ranks, engine_options<compose<architecture::independent>>()),
                std::sqrt(alone), 0.01 * std::sqrt(alone));
    engine_options<compose<architecture::model_averaging<>>> set;
    set.architecture.alpha = 0.5;
    EXPECT_NEAR(apart(ranks, set), std::sqrt(kept), 0.01 * std::sqrt(kept));
    EXPECT_NEAR(apart(ranks, engine_options<over_ring<>>()), 0, 1e-4);
  }
  EXPECT_FALSE(run<over_ring<>>(network(2, nic), model(1, 1e-3, 1e-3)).consensus.has_value());
}

TEST(Replay, PayloadsAreCountedAsTheCompressorSays) {
  const auto votes =
      run<compose<architecture::all_gather, compression::sign>>(network(3, nic), model(4, 0, 1e-3));
  EXPECT_EQ(votes.payload_bytes, 4 * 31'252) << "bits of 250,000 signs, in whole words";
  EXPECT_EQ(votes.bytes_sent, 4U * 2 * static_cast<std::uint64_t>(votes.payload_bytes));
}

TEST(Replay, EmulationCountsTheSameTimeAsSimulation) {
  using strategy = over_ring<>;
  const network over(4, {1e8, 1e-5});
  const auto compute = model(4, 1e-3, 2e-3);
  const replay_options length{.iterations = 3, .warmup = 1};
  replay<strategy> simulation(compute, {}, payloads::counted, length);
  replay<strategy> emulation(compute, {}, payloads::carried, length);
  run_simulated(over, device{}, [&](simulated& world) { return simulation(world); });
  const auto run = run_emulated(over, device{}, [&](simulated& world) { return emulation(world); });
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(simulation.result().iterations[i], emulation.result().iterations[i], 1e-12);
  }
  EXPECT_EQ(simulation.result().bytes_sent, emulation.result().bytes_sent);
  EXPECT_GE(run.wall, run.time);
}

/// Nobody is taken for stuck in virtual time, so no cycle is too long.
TEST(Replay, ACycleMayBeLongerThanTheDeadline) {
  engine_options<over_ring<fusion::when_ready>> set;
  set.fusion.cycle = 2 * set.run.deadline;
  const auto got = run<over_ring<fusion::when_ready>>(network(2, nic), model(8, 3e-3, 6e-3), set);
  EXPECT_NEAR(got.quantile(0.5), set.fusion.cycle, 1e-7);
}

TEST(Replay, RefusesMoreElementsThanItCanCount) {
  constexpr std::size_t most = std::size_t{1} << 40;
  const auto said = [](std::vector<std::size_t> sizes) -> std::string {
    std::vector<computation> what;
    for (const std::size_t each : sizes) {
      what.push_back({"weight", each, 1e-3, 1e-3});
    }
    try {
      run<over_ring<>>(network(2, nic), what);
    } catch (const usage_error& refused) {
      return refused.what();
    }
    return "";
  };
  const auto refused = [](const std::string& last) {
    return "a replayed model may have at most 1099511627776 elements, but with the " + last +
           " of weight this one has more. Fix: use a smaller one";
  };
  EXPECT_EQ(said({most}), "");
  EXPECT_EQ(said({most, 1}), refused("1"));
  EXPECT_EQ(said({std::size_t{1} << 62}), refused("4611686018427387904"));
  EXPECT_EQ(said({~std::size_t{0}, 2}), refused("18446744073709551615"));
}

TEST(Replay, RefusesNoIterations) {
  EXPECT_THROW((replay<over_ring<>>({}, {}, payloads::counted, {.iterations = 0})), usage_error);
}

}  // namespace
}  // namespace tutti::test
