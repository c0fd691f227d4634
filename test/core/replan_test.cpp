// A run that changes its plan on the way ends as one that had either plan from the beginning, where
// sums are exact. Where a compressor has memory, it ends as a run that was saved at the change and
// resumed under the new plan.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "support/adaptive_sum_oracle.hpp"
#include "support/device_training.hpp"
#include "support/replanning.hpp"
#include "support/training.hpp"
#include "support/unbuffered_library.hpp"
#include "tutti/architecture/adasum.hpp"
#include "tutti/architecture/bipartite_averaging.hpp"
#include "tutti/architecture/delayed.hpp"
#include "tutti/architecture/local_sgd.hpp"
#include "tutti/architecture/pair_averaging.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/architecture/sharded.hpp"
#include "tutti/architecture/switch_at.hpp"
#include "tutti/base/host_stream.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/compression/block_int8.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/power_sgd.hpp"
#include "tutti/compression/scaled_sign.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/coordination/negotiated.hpp"
#include "tutti/core/checkpoint.hpp"
#include "tutti/fusion/by_group.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/fusion/when_ready.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/schedule/by_priority.hpp"
#include "tutti/schedule/split_phase.hpp"

namespace tutti::test {
namespace {

constexpr int steps = replanned_steps;
using dense = architecture::all_reduce<collective::canonical>;

/// Trains on threads. Each step of `changes` begins with the other plan, and training begins with
/// plan 0.
template <class Strategy>
std::vector<std::vector<float>> train(int workers, const std::vector<int>& changes) {
  const auto ranks = workers + servers_in<Strategy>(plan_of<Strategy>(0));
  std::vector<std::vector<float>> parameters(static_cast<std::size_t>(ranks));
  transport::run_ranks(ranks, [&](transport::in_process& world) {
    parameters[static_cast<std::size_t>(world.rank())] = trained_over<Strategy>(world, changes);
  });
  parameters.resize(static_cast<std::size_t>(workers));
  return parameters;
}

/// Parameters are the oracle's bit for bit, with 1 to 5 workers.
template <class Strategy>
void changes_nothing() {
  for (int workers = 1; workers <= 5; ++workers) {
    const auto expected = trained(workers, steps);
    for (const auto& each : train<Strategy>(workers, {3, 6})) {
      EXPECT_EQ(each, expected) << workers << " workers";
    }
  }
}

TEST(Replan, OfBucketsChangesNothing) {
  changes_nothing<compose<dense, fusion::up_to, partition::into>>();
}
TEST(Replan, OfAWindowThatRankZeroLeadsChangesNothing) {
  changes_nothing<compose<dense, fusion::up_to, partition::into, schedule::by_priority>>();
}
TEST(Replan, OfExchangesInHalvesChangesNothing) {
  changes_nothing<compose<dense, fusion::up_to, partition::into, schedule::split_phase>>();
}
TEST(Replan, OfLaunchesGatheredAtRunTimeChangesNothing) {
  changes_nothing<compose<dense, fusion::when_ready, partition::into, coordination::negotiated>>();
}
/// Adaptive weights belong to tensors, however these are fused, and a step begins from the current
/// parameters.
TEST(Replan, OfAdaptiveStepsChangesNothing) {
  using strategy = compose<architecture::adasum<carries::difference>, fusion::up_to>;
  for (const int workers : {1, 3, 4}) {
    const auto expected = of_adaptive_steps(workers, steps, gradient);
    for (const auto& each : train<strategy>(workers, {3, 6})) {
      EXPECT_EQ(each, expected) << workers << " workers";
    }
  }
}
TEST(Replan, OfServersThatUpdateMovesTheirMomentaToNewOwners) {
  changes_nothing<
      compose<architecture::parameter_server<consistency::synchronous, updated_by::servers>,
              fusion::up_to, partition::into, schedule::by_priority>>();
}
TEST(Replan, OfSharesMovesTheirMomentaToNewOwners) {
  changes_nothing<compose<architecture::sharded<collective::canonical>, fusion::up_to,
                          partition::into, schedule::split_phase>>();
}
TEST(Replan, OfServersThatAddChangesNothing) {
  changes_nothing<compose<architecture::parameter_server<>, fusion::up_to, partition::into>>();
}
TEST(Replan, KeepsTheMeanThatIsStillToBeApplied) {
  using strategy = compose<architecture::delayed<dense>, fusion::up_to, partition::into>;
  for (int workers = 1; workers <= 5; ++workers) {
    EXPECT_EQ(train<strategy>(workers, {3, 6}), train<strategy>(workers, {}));
  }
}
TEST(Replan, KeepsEachRanksOwnMomenta) {
  using strategy =
      compose<architecture::local_sgd<collective::canonical>, fusion::up_to, partition::into>;
  for (int workers = 1; workers <= 5; ++workers) {
    EXPECT_EQ(train<strategy>(workers, {3, 6}), train<strategy>(workers, {}));
  }
}

/// How the second plan is reached for the last half of a run.
enum class by { replan, checkpoint };
template <class Strategy>
std::vector<std::vector<float>> change_plan(int workers, by how) {
  const auto size = static_cast<std::size_t>(workers);
  std::vector<std::vector<float>> parameters(size);
  std::vector<std::string> files(size);
  const auto part = [&](int first, int last, int plan) {
    transport::run_ranks(workers, [&](transport::in_process& world) {
      const auto rank = static_cast<std::size_t>(world.rank());
      arena memory = model_of(world.rank());
      auto engine =
          make_engine<Strategy>(world, memory.tensors(), optimizer_of(), plan_of<Strategy>(plan));
      if (!files[rank].empty()) {
        std::istringstream in(files[rank]);
        load(engine, in);
      }
      for (int step = first; step < last; ++step) {
        if (step == steps / 2 && how == by::replan) {
          engine.replan(plan_of<Strategy>(1));
        }
        take_step(engine, memory, step);
      }
      engine.wait();
      std::ostringstream out;
      save(engine, out);
      files[rank] = out.str();
      parameters[rank].assign(memory.parameters().begin(), memory.parameters().end());
    });
  };
  if (how == by::replan) {
    part(0, steps, 0);
  } else {
    part(0, steps / 2, 0);
    part(steps / 2, steps, 1);
  }
  parameters.insert(parameters.end(), files.size(), {});
  for (std::size_t rank = 0; rank < size; ++rank) {  // with all other state
    parameters[size + rank].assign(files[rank].begin(), files[rank].end());
  }
  return parameters;
}
template <class Strategy>
void is_a_checkpoint_resumed() {
  for (int workers = 1; workers <= 5; ++workers) {
    EXPECT_EQ(change_plan<Strategy>(workers, by::replan),
              change_plan<Strategy>(workers, by::checkpoint))
        << workers << " workers";
  }
}

TEST(Replan, KeepsWhatTopKLeftOut) {
  is_a_checkpoint_resumed<compose<fusion::up_to, architecture::all_gather,
                                  compression::error_feedback<compression::top_k>>>();
}
TEST(Replan, KeepsTheMeanThatIsStillToBeAppliedAsACheckpointDoes) {
  is_a_checkpoint_resumed<compose<architecture::delayed<dense>, fusion::up_to, partition::into>>();
}
TEST(Replan, KeepsWhatPowerSgdRemembersOfTensors) {
  is_a_checkpoint_resumed<compose<fusion::up_to, dense, compression::power_sgd>>();
}

/// The residuals of means stay with their elements and move to whichever rank owns those now.
template <class Strategy>
void moves_what_means_left_out() {
  for (int workers = 1; workers <= 5; ++workers) {
    const auto size = static_cast<std::size_t>(workers);
    std::vector<std::vector<float>> before(size);
    std::vector<std::vector<float>> after(size);
    std::vector<std::vector<char>> owns(size, std::vector<char>(total_elements()));
    transport::run_ranks(workers, [&](transport::in_process& world) {
      const auto rank = static_cast<std::size_t>(world.rank());
      arena memory = model_of(world.rank());
      auto engine =
          make_engine<Strategy>(world, memory.tensors(), optimizer_of(), plan_of<Strategy>(0));
      for (int step = 0; step < steps; ++step) {
        take_step(engine, memory, step);
      }
      engine.drain();
      const auto of_means = [&engine] {
        const std::span<float> all = engine.memories()[1];
        return std::vector<float>(all.begin(), all.end());
      };
      before[rank] = of_means();
      engine.replan(plan_of<Strategy>(1));
      after[rank] = of_means();
      for (const chunk& each : engine.planned().chunks) {
        const chunk part = each.part(size, rank);
        std::fill_n(owns[rank].begin() + static_cast<std::ptrdiff_t>(part.first_element),
                    part.elements, char{1});
      }
    });
    std::size_t moved = 0;
    for (std::size_t i = 0; i < total_elements(); ++i) {
      float sum = 0;
      for (const auto& each : before) {
        sum += each[i];
      }
      for (std::size_t rank = 0; rank < size; ++rank) {
        ASSERT_EQ(after[rank][i], owns[rank][i] != 0 ? sum : 0.0f) << i;
        moved += after[rank][i] != before[rank][i];
      }
    }
    EXPECT_EQ(moved > 0, workers > 1);
  }
}
template <class... Policies>
using twice_encoded = compose<partition::into, architecture::reduce_scatter_all_gather,
                              compression::error_feedback<compression::block_int8>, Policies...>;
TEST(Replan, MovesWhatMeansLeftOutToTheirNewOwners) {
  moves_what_means_left_out<twice_encoded<fusion::up_to>>();
}
TEST(Replan, MovesWhatMeansOfGatheredLaunchesLeftOut) {
  moves_what_means_left_out<twice_encoded<fusion::when_ready, coordination::negotiated>>();
}

TEST(Replan, OfModelsThatAverageInPairsChangesNothing) {
  using strategy = compose<architecture::pair_averaging, fusion::up_to, partition::into>;
  for (int ranks = 1; ranks <= 5; ++ranks) {
    std::vector<std::vector<float>> parameters(static_cast<std::size_t>(ranks));
    transport::run_ranks(ranks, [&](transport::in_process& world) {
      parameters[static_cast<std::size_t>(world.rank())] = paired_in_turns<strategy>(world, {3, 6});
    });
    EXPECT_EQ(parameters, paired_in_one_process(ranks)) << ranks << " ranks";
  }
}

/// Models that are equal and learn nothing stay equal. A fusion of the tensors outside a group
/// decides whether their chunks come before or behind the group's.
TEST(Replan, KeepsWhatPassiveRanksAverageInItsPlaces) {
  using grouped = fusion::by_group<fusion::up_to, named<"group">>;
  using strategy = compose<architecture::bipartite_averaging, grouped>;
  transport::run_ranks(2, [](transport::in_process& world) {
    arena memory = model_of(world.rank(), {{"first", 50}, {"group", 7}, {"last", 30}});
    const optimizer::sgd learns_nothing{.learning_rate = 0, .momentum = 0};
    auto engine =
        make_engine<strategy>(world, memory.tensors(), learns_nothing, plan_of<strategy>(0));
    const std::vector<float> before(memory.parameters().begin(), memory.parameters().end());
    take_step(engine, memory, 0);
    engine.replan(plan_of<strategy>(1));
    take_step(engine, memory, 1);
    engine.wait();
    EXPECT_TRUE(std::ranges::equal(before, memory.parameters())) << "rank " << world.rank();
  });
}

/// With one worker, asynchronous servers give the same parameters as training without a re-plan, so
/// no pushed gradient is lost.
TEST(Replan, AsynchronousServersGoOnWhereTheyWere) {
  using strategy =
      compose<architecture::parameter_server<consistency::asynchronous, updated_by::workers>,
              fusion::up_to, partition::into>;
  EXPECT_EQ(train<strategy>(1, {3, 6}), train<strategy>(1, {}));
}

/// A worker that re-plans first leaves the servers to those that still wait for their answers.
TEST(Replan, AsynchronousWorkersNeedNotBeInStep) {
  using strategy =
      compose<architecture::parameter_server<consistency::asynchronous, updated_by::workers>,
              fusion::up_to, partition::into>;
  constexpr int workers = 2;
  const auto set = plan_of<strategy>(0);
  const optimizer::sgd plain{.learning_rate = 0.125f};
  transport::run_ranks(workers + servers_in<strategy>(set), [&](transport::in_process& world) {
    arena memory = model_of(0);
    const std::vector<float> before(memory.parameters().begin(), memory.parameters().end());
    auto engine = make_engine<strategy>(world, memory.tensors(), plain, set);
    if (engine.serves()) {
      engine.serve();
      return;
    }
    std::vector<double> expected(before.begin(), before.end());
    for (int step = 0; step < 4; ++step) {
      if (step == 2) {
        engine.replan(plan_of<strategy>(1));
      }
      if (engine.worker() == 1) {  // the slow worker
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      take_step(engine, memory, step);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        for (int worker = 0; worker < workers; ++worker) {
          expected[i] -= 0.125 * static_cast<double>(gradient(worker, step, i));
        }
      }
    }
    engine.wait();
    engine.average(0);  // all differences have reached the servers
    for (std::size_t id = memory.tensors().size(); id-- > 0;) {
      engine.absent(tensor_id(id));
    }
    engine.wait();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(memory.parameters()[i], expected[i], 1e-3) << i;
    }
  });
}

/// An architecture that switches at a given step does so at the step that a re-plan chooses.
TEST(Replan, SwitchesArchitectures) {
  using strategy =
      compose<architecture::switch_at<dense, architecture::local_sgd<collective::canonical>>,
              fusion::up_to, partition::into>;
  constexpr int at = 3;
  const auto parameters = [](std::uint64_t planned, bool changes) {
    std::vector<std::vector<float>> all(3);
    transport::run_ranks(3, [&](transport::in_process& world) {
      arena memory = model_of(world.rank());
      auto set = plan_of<strategy>(0);
      set.architecture.step = planned;
      auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of(), set);
      for (int step = 0; step < steps; ++step) {
        if (changes && step == at) {
          engine.wait();
          set.architecture.step = engine.steps();
          engine.replan(set);
        }
        take_step(engine, memory, step);
      }
      engine.wait();
      all[static_cast<std::size_t>(world.rank())].assign(memory.parameters().begin(),
                                                         memory.parameters().end());
    });
    return all;
  };
  EXPECT_EQ(parameters(1000, true), parameters(at, false));
  EXPECT_NE(parameters(1000, false), parameters(at, false));
}

TEST(Replan, ChangesHowManyPassesAStepHas) {
  using strategy = compose<dense, fusion::up_to>;
  transport::run_ranks(3, [](transport::in_process& world) {
    std::vector<float> x(1, 0.0f);
    std::vector<float> g(1);
    auto engine =
        make_engine<strategy>(world, {tensor("x", x, g)}, optimizer::sgd{.learning_rate = 1.0f});
    const auto pass = [&](float sum) {
      g[0] = sum;
      engine.ready(tensor_id(0));
    };
    pass(3.0f);
    engine.wait();
    EXPECT_EQ(x[0], -3.0f);
    engine_options<strategy> set;
    set.run.accumulation = 2;
    engine.replan(set);
    pass(3.0f);
    pass(8.0f);
    engine.wait();
    EXPECT_EQ(x[0], -7.0f);
  });
}

/// On the virtual clock a re-plan is awaited, and no gradient is lost either.
using on_the_clock = compose<dense, fusion::up_to, partition::into, schedule::by_priority>;
task replanning_rank(transport::simulated& world, std::vector<std::vector<float>>& parameters) {
  arena memory = model_of(world.rank());
  const auto first = plan_of<on_the_clock>(0);
  const auto second = plan_of<on_the_clock>(1);
  auto engine = make_engine<on_the_clock>(world, memory.tensors(), optimizer_of(), first);
  co_await engine.started();
  for (int step = 0; step < steps; ++step) {
    if (step == steps / 2) {
      task changing = engine.replanned(second);
      co_await changing;
    }
    backward(memory, engine.worker(), step);
    for (const tensor_id id : shuffled(memory.tensors().size(), world.rank(), step)) {
      co_await world.sleep(1e-6);
      engine.ready(id);
    }
    for (std::size_t id = 0; id < memory.tensors().size(); ++id) {
      co_await engine.arrival(tensor_id(id));
    }
  }
  parameters[static_cast<std::size_t>(world.rank())].assign(memory.parameters().begin(),
                                                            memory.parameters().end());
  co_await engine.close();
}
TEST(Replan, OnTheVirtualClockChangesNothing) {
  for (int workers = 1; workers <= 5; ++workers) {
    std::vector<std::vector<float>> parameters(static_cast<std::size_t>(workers));
    transport::run_simulated(
        workers, transport::link{1.25e9, 50e-6},
        [&](transport::simulated& world) { return replanning_rank(world, parameters); });
    for (const auto& each : parameters) {
      EXPECT_EQ(each, trained(workers, steps)) << workers << " workers";
    }
  }
}

// ---- in a device's memory

/// Returns worker 0's parameters after steps on either side of a re-plan, with its host ahead of
/// its device.
template <class Strategy, class Transport, class Run>
std::vector<float> replanned_over(int ranks, Run run) {
  using queue = typename Transport::queue_type;
  std::vector<float> result;
  run(ranks, [&](Transport& world) {
    queue compute;
    scattered_model<queue> model(compute);
    auto set = plan_of<Strategy>(0);
    set.fusion.bytes = 100;
    auto engine = make_engine<Strategy>(world, model.tensors(), device_optimizer(), set);
    if (engine.serves()) {
      engine.serve();
      return;
    }
    take_steps(engine, model, compute, 0, 3);
    set.fusion.bytes = 5000;
    set.partition.bytes = 1500;
    engine.replan(set);
    take_steps(engine, model, compute, 3, device_steps);
    if (world.rank() == 0) {
      result = model.parameters();
    }
  });
  return result;
}

constexpr auto on_threads = []<class Body>(int ranks, Body body) {
  transport::run_ranks<transport::in_process>(ranks, body);
};
using on_streams = transport::basic_in_process<host_stream, transport::by_mailbox>;
constexpr auto on_device_threads = []<class Body>(int ranks, Body body) {
  transport::run_ranks<on_streams>(ranks, body);
};
constexpr auto in_order_of_streams = []<class Body>(int ranks, Body body) {
  run_streamed(ranks, body);
};

TEST(Replan, MovesServersMemoryOnADevice) {
  using strategy =
      compose<architecture::parameter_server<consistency::synchronous, updated_by::servers>,
              fusion::up_to, partition::into>;
  for (const int ranks : {3, 4}) {
    const auto expected = replanned_over<strategy, transport::in_process>(ranks, on_threads);
    EXPECT_FALSE(expected.empty());
    EXPECT_EQ((replanned_over<strategy, on_streams>(ranks, on_device_threads)), expected);
  }
}
TEST(Replan, KeepsResidualsWhereAStreamMovesChunks) {
  using strategy = compose<fusion::up_to, partition::into, schedule::by_priority,
                           architecture::reduce_scatter_all_gather,
                           compression::error_feedback<compression::scaled_sign>>;
  for (const int ranks : {1, 2, 4}) {
    const auto expected = replanned_over<strategy, transport::in_process>(ranks, on_threads);
    EXPECT_FALSE(expected.empty());
    EXPECT_EQ((replanned_over<strategy, streamed>(ranks, in_order_of_streams)), expected);
  }
}

}  // namespace
}  // namespace tutti::test
