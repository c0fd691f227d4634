// Exchanges that are no mean of floats, between processes. Payloads of unknown length, sums in
// rounds and votes are compared with the oracles, and bytes with the codec's. Servers count every
// push once, and some ranks send nothing.
#include <algorithm>
#include <cstddef>
#include <gtest/gtest.h>
#include <vector>

#include "support/low_rank_oracle.hpp"
#include "support/mpi_world.hpp"
#include "support/strategy_laws.hpp"
#include "support/training.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/optimizer/one_bit_adam.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/strategies/local.hpp"
#include "tutti/strategies/one_bit_adam.hpp"
#include "tutti/strategies/power_sgd.hpp"
#include "tutti/strategies/top_k.hpp"
#include "tutti/transport/in_process.hpp"
#include "tutti/transport/mpi.hpp"

namespace tutti::test {

static_assert(strategies_in<coded_strategies_on<on_processes>> == 8);
INSTANTIATE_TYPED_TEST_SUITE_P(Coded, StrategyLaw, coded_strategies_on<on_processes>);

using votes_of_processes = testing::Types<strategy_on<listed::SignSGD, on_processes>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Votes, StrategyLaw, votes_of_processes);

/// Two servers if three processes leave a worker, otherwise one. Whichever worker comes first,
/// every push of every step counts once. Without momentum a gradient moves the parameters by the
/// same amount wherever they are.
template <class UpdatedBy>
void counts_every_push_once() {
  constexpr int steps = 4;
  constexpr float rate = 0.01f;
  using strategy = compose<architecture::parameter_server<consistency::asynchronous, UpdatedBy>,
                           fusion::up_to, partition::into>;
  on_all_processes([](transport::mpi& world) {
    if (world.size() == 1) {
      GTEST_SKIP() << "a server leaves no worker";
    }
    engine_options<strategy> set;
    set.fusion.bytes = 3000;
    set.partition.bytes = 20'000;
    set.architecture.servers = world.size() == 2 ? 1 : 2;
    const int workers = world.size() - set.architecture.servers;
    arena memory = model_of(world.rank());
    auto engine =
        make_engine<strategy>(world, memory.tensors(), optimizer::sgd{.learning_rate = rate}, set);
    if (engine.serves()) {
      EXPECT_EQ(engine.serve(), 0);
      return;
    }
    for (int step = 0; step < steps; ++step) {
      take_step(engine, memory, step);
    }
    engine.wait();
    engine.average(0);  // now every worker has pushed
    std::ranges::fill(memory.gradients(), 0.0f);
    for (std::size_t id = 0; id < memory.tensors().size(); ++id) {
      engine.ready(tensor_id(id));
    }
    engine.wait();  // and this worker has the result
    for (std::size_t i = 0; i < memory.parameters().size(); ++i) {
      double expected = initial(i);
      for (int step = 0; step < steps; ++step) {
        for (int worker = 0; worker < workers; ++worker) {
          expected -= double{rate} * gradient(worker, step, i);
        }
      }
      ASSERT_NEAR(memory.parameters()[i], expected, 1e-4) << i;
    }
  });
}
TEST(AsynchronousServers, AddEveryDifferenceOnce) { counts_every_push_once<updated_by::workers>(); }
TEST(AsynchronousServers, StepByEveryGradientOnce) {
  counts_every_push_once<updated_by::servers>();
}

TEST(Independent, RanksTrainAloneAndSendNothing) {
  constexpr int steps = 4;
  on_all_processes([](transport::mpi& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<strategies::Local>(world, memory.tensors(), optimizer_of());
    const auto before = engine.counted().bytes_sent;
    for (int step = 0; step < steps; ++step) {
      take_step(engine, memory, step);
    }
    engine.wait();
    const auto alone = descended(
        steps, {}, [&world](int step, std::size_t i) { return gradient(world.rank(), step, i); });
    const auto mine = memory.parameters();
    EXPECT_EQ(std::vector<float>(mine.begin(), mine.end()), alone);
    EXPECT_EQ(engine.counted().bytes_sent, before);
  });
}

TEST(MpiPayloads, AreAddedInRounds) {
  constexpr int steps = 4;
  on_all_processes([](transport::mpi& world) {
    arena memory = model_of(world.rank(), shaped_declarations());
    auto engine = make_engine<strategies::PowerSGD>(world, memory.tensors(), optimizer_of());
    const auto before = engine.counted().bytes_sent;
    for (int step = 0; step < steps; ++step) {
      take_step(engine, memory, step);
    }
    engine.wait();
    const auto exact = trained_in_low_rank(world.size(), steps, 2, 1);
    for (std::size_t i = 0; i < memory.parameters().size(); ++i) {
      ASSERT_NEAR(memory.parameters()[i], exact.parameters[i], exact.bound) << i;
    }
    EXPECT_EQ(engine.counted().bytes_sent != before, world.size() > 1);
  });
}

/// Returns a rank's parameters after some steps.
template <class Strategy, class World, class Optimizer>
std::vector<float> trained_by(World& world, const Optimizer& values) {
  arena memory = model_of(world.rank());
  auto engine = make_engine<Strategy>(world, memory.tensors(), values);
  for (int step = 0; step < 6; ++step) {
    take_step(engine, memory, step);
  }
  engine.wait();
  return {memory.parameters().begin(), memory.parameters().end()};
}

/// Expects the bits of threads of one process, which an oracle in double precision checks.
template <class Strategy, class Optimizer>
void train_as_between_threads(const Optimizer& values) {
  on_all_processes([&values](transport::mpi& world) {
    std::vector<std::vector<float>> of_threads(static_cast<std::size_t>(world.size()));
    transport::run_ranks(world.size(), [&](transport::in_process& one) {
      of_threads[static_cast<std::size_t>(one.rank())] = trained_by<Strategy>(one, values);
    });
    EXPECT_EQ(trained_by<Strategy>(world, values),
              of_threads[static_cast<std::size_t>(world.rank())]);
  });
}
TEST(MpiPayloads, OfSelectionsThatAreMadeTwice) {
  train_as_between_threads<strategies::TopK2>(optimizer_of());
}
TEST(MpiPayloads, OfMomenta) {
  train_as_between_threads<strategies::OneBitAdam>(optimizer::one_bit_adam{.freeze_step = 3});
}

}  // namespace tutti::test

int main(int argc, char** argv) { return tutti::test::run_tests_of_processes(argc, argv); }
