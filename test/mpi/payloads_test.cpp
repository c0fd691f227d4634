// Payloads of unknown length and sums in rounds, between processes: values against the oracles, and
// bytes as the codec makes them.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <utility>
#include <vector>

#include "support/low_rank_oracle.hpp"
#include "support/mpi_world.hpp"
#include "support/payload_oracle.hpp"
#include "support/training.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/strategies/power_sgd.hpp"
#include "tutti/strategies/qsgd.hpp"
#include "tutti/transport/mpi.hpp"

namespace tutti::test {
namespace {

constexpr int steps = 4;
transport::mpi* world = nullptr;

/// This worker's parameters and the bytes that its steps have sent; nothing on a server.
template <class Strategy>
std::pair<std::vector<float>, std::uint64_t> train(const std::vector<arena::declaration>& forward,
                                                   engine_options<Strategy> options = {}) {
  arena memory = model_of(world->rank(), forward);
  auto engine = make_engine<Strategy>(*world, memory.tensors(), optimizer_of(), options);
  if (engine.serves()) {
    engine.serve();
    return {};
  }
  const std::uint64_t before = engine.counted().bytes_sent;
  for (int step = 0; step < steps; ++step) {
    engine.wait();
    backward(memory, engine.worker(), step);
    for (const tensor_id id : shuffled(memory.tensors().size(), world->rank(), step)) {
      engine.ready(id);
    }
  }
  engine.wait();
  return {{memory.parameters().begin(), memory.parameters().end()},
          engine.counted().bytes_sent - before};
}

template <class Strategy>
void expect_payloads_of(way how) {
  const int workers = world->size() - (how == way::served ? 1 : 0);
  if (workers == 0) {
    GTEST_SKIP() << "a server leaves no worker";
  }
  const auto [parameters, bytes] = train<Strategy>(declarations());
  if (world->rank() < workers) {
    const auto wanted = payloads<compression::qsgd>(how, workers, steps);
    EXPECT_EQ(parameters, wanted.parameters);
    EXPECT_EQ(bytes, wanted.bytes[static_cast<std::size_t>(world->rank())]);
  }
}

TEST(MpiPayloads, AreGathered) { expect_payloads_of<strategies::QSGD>(way::gathered); }
TEST(MpiPayloads, AreScatteredAndGathered) {
  expect_payloads_of<compose<compression::qsgd, architecture::reduce_scatter_all_gather>>(
      way::scattered);
}
TEST(MpiPayloads, AreServed) {
  expect_payloads_of<compose<compression::qsgd, architecture::parameter_server<>>>(way::served);
}

TEST(MpiPayloads, AreAddedInRounds) {
  const auto wanted = trained_in_low_rank(world->size(), steps, 2, 1);
  const auto [parameters, bytes] = train<strategies::PowerSGD>(shaped_declarations());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    ASSERT_NEAR(parameters[i], wanted.parameters[i], wanted.bound) << i;
  }
  EXPECT_EQ(bytes != 0, world->size() > 1);
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) {
  return tutti::test::run_tests_over(tutti::test::world, argc, argv);
}
