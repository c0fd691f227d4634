// When a sum of gradients becomes their mean: bit for bit as in plain loops, under every
// architecture with a type parameter for it. Means that are made after the sum are what the other
// oracles use.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <gtest/gtest.h>
#include <vector>

#include "support/training.hpp"
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/architecture/delayed.hpp"
#include "tutti/architecture/local_sgd.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/architecture/replicated.hpp"
#include "tutti/architecture/sharded.hpp"
#include "tutti/architecture/switch_at.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/compression/fp16.hpp"
#include "tutti/strategies/ddp.hpp"

namespace tutti::test {
namespace {

using architecture::mean;

constexpr int steps = 3;
constexpr unsigned passes = 2;

/// Returns a worker's gradient of a step, summed over its passes.
float own_gradient(int worker, int step, std::size_t element) {
  return gradient(worker, 2 * step, element) + gradient(worker, 2 * step + 1, element);
}

/// Returns the parameters after `so_many` steps of plain loops. Every operation is rounded to
/// float.
std::vector<float> expected(mean when, int workers, int so_many) {
  const float factor = 1.0f / static_cast<float>(when == mean::none ? 2 : 2 * workers);
  return descended(so_many, {}, [&](int step, std::size_t i) {
    float sum = 0;
    for (int worker = 0; worker < workers; ++worker) {
      const float own = own_gradient(worker, step, i);
      sum += when == mean::before ? own * factor : own;
    }
    return when == mean::before ? sum : sum * factor;
  });
}

template <class Strategy>
outcome trained_in_passes(int workers, engine_options<Strategy> set = {}) {
  set.run.accumulation = passes;
  outcome result(workers);
  transport::run_ranks(workers + servers_in<Strategy>(set), [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(), set);
    if (engine.serves()) {
      engine.serve();
      return;
    }
    for (int step = 0; step < steps; ++step) {
      engine.wait();
      for (const int pass : {0, 1}) {
        for (std::size_t i = 0; i < total_elements(); ++i) {
          memory.gradients()[i] =
              pass == 0 ? gradient(world.rank(), 2 * step, i) : own_gradient(world.rank(), step, i);
        }
        for (const tensor_id id : shuffled(memory.tensors().size(), world.rank(), step)) {
          engine.ready(id);
        }
      }
    }
    engine.wait();
    result.parameters[static_cast<std::size_t>(world.rank())].assign(memory.parameters().begin(),
                                                                     memory.parameters().end());
  });
  return result;
}

template <class Architecture>
void makes_means(mean when, int so_many = steps) {
  for (int workers = 1; workers <= 5; ++workers) {
    const outcome made = trained_in_passes<compose<Architecture>>(workers);
    for (const auto& each : made.parameters) {
      EXPECT_EQ(each, expected(when, workers, so_many)) << workers << " workers";
    }
  }
}

TEST(Mean, OraclesDiffer) {
  EXPECT_NE(expected(mean::before, 3, steps), expected(mean::after, 3, steps));
  EXPECT_EQ(expected(mean::before, 4, steps), expected(mean::after, 4, steps))
      << "a quarter is exact";
}

TEST(Mean, OfAnAllReduce) {
  using collective::canonical;
  makes_means<architecture::all_reduce<canonical>>(mean::after);
  makes_means<architecture::all_reduce<canonical, mean::before>>(mean::before);
  makes_means<architecture::all_reduce<canonical, mean::none>>(mean::none);
}
TEST(Mean, OfWhateverReplicates) {
  makes_means<architecture::replicated<mean::before>>(mean::before);
}
TEST(Mean, OfShares) {
  using architecture::gradients;
  using collective::canonical;
  makes_means<architecture::sharded<canonical, gradients::kept, mean::before>>(mean::before);
  makes_means<architecture::sharded<canonical, gradients::kept, mean::none>>(mean::none);
}
TEST(Mean, OfServers) {
  using architecture::parameter_server;
  using consistency::synchronous;
  makes_means<parameter_server<synchronous, updated_by::workers, mean::before>>(mean::before);
  makes_means<parameter_server<synchronous, updated_by::servers, mean::none>>(mean::none);
}
TEST(Mean, AStepLate) {
  using inner = architecture::all_reduce<collective::canonical, mean::before>;
  makes_means<architecture::delayed<inner>>(mean::before, steps - 1);
}
TEST(Mean, BeforeASwitch) {
  using first = architecture::all_reduce<collective::canonical, mean::none>;
  using strategy = compose<architecture::switch_at<first, architecture::local_sgd<>>>;
  const outcome made = trained_in_passes<strategy>(3, {.architecture = {.step = steps}});
  EXPECT_EQ(made.parameters[1], expected(mean::none, 3, steps));
}

/// Returns the mean of a value that each of four ranks has.
template <class Strategy>
float mean_of_four(float each) {
  float first = 0;
  transport::run_ranks(4, [&](transport::in_process& world) {
    arena memory(std::vector<arena::declaration>{{"one", 8}});
    auto engine = make_engine<Strategy>(world, memory.tensors());
    std::ranges::fill(memory.gradients(), each);
    engine.ready(tensor_id(0));
    engine.wait();
    if (world.rank() == 0) {
      first = memory.gradients()[0];
    }
  });
  return first;
}

/// Four times this value overflows half precision or, in the last case, a float; four quarters of
/// it do not.
TEST(Mean, BeforeASumThatOverflows) {
  using compression::fp16;
  EXPECT_EQ((mean_of_four<compose<fp16, architecture::replicated<mean::before>>>(40'000)), 40'000);
  EXPECT_TRUE(std::isinf(mean_of_four<compose<fp16>>(40'000)));
  EXPECT_EQ(mean_of_four<strategies::DDP>(3e38f), 3e38f);
}

}  // namespace
}  // namespace tutti::test
