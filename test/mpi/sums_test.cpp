// The sums that monitors make over the workers, between processes.
#include <gtest/gtest.h>

#include "support/mpi_world.hpp"
#include "support/summing.hpp"
#include "tutti/architecture/independent.hpp"
#include "tutti/optimizer/none.hpp"
#include "tutti/transport/mpi.hpp"

namespace tutti::test {
namespace {

transport::mpi* processes = nullptr;

TEST(Sums, AreThoseOfAllProcesses) {
  auto& world = *processes;
  arena memory = model_of(world.rank());
  auto engine =
      make_engine<compose<>>(world, memory.tensors(), optimizer::none(), {}, summing(memory));
  train_and_sum(engine, memory, 0, 4);
  const auto& seen = engine.observed().steps;
  expect_sums(seen, world.size(), 4);
  for (const auto& step : seen) {
    for (const double each : step) {  // equal everywhere: the mean of equal values in rank order
      EXPECT_NEAR(engine.average(each), each, 1e-15 * world.size() * each);
    }
  }
}

TEST(Sums, EndWithTheProcessThatTakesTheFewestSteps) {
  auto& world = *processes;
  for (const int fewest : {0, world.size() - 1}) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<compose<architecture::independent>>(
        world, memory.tensors(), optimizer_of(), {}, summing(memory));
    train_and_sum(engine, memory, 0, world.rank() == fewest ? 2 : 4);
    EXPECT_EQ(engine.observed().steps.size(), 2U);
  }
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) {
  return tutti::test::run_tests_over(tutti::test::processes, argc, argv);
}
