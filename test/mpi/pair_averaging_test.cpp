// Nobody waits for a slow process: it computes ten times as long in code of its own, outside any
// call of the engine, and the others keep their pace. Where gradients are averaged the same check
// must fail.
#include "tutti/architecture/pair_averaging.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <vector>

#include "support/mpi_world.hpp"
#include "support/training.hpp"
#include "tutti/transport/mpi.hpp"

namespace tutti::test {
namespace {

transport::mpi* processes = nullptr;

constexpr int steps = 20;
constexpr double step_takes = 0.01;

void pass_time(double duration) {
  std::this_thread::sleep_for(std::chrono::duration<double>(duration));
}

/// Seconds that the slowest of the ranks but 1 needs for its steps while rank 1 is `times` as slow.
template <class Strategy>
double time_of_others(double times) {
  auto& world = *processes;
  arena memory(std::vector<arena::declaration>{{"weight", 1 << 16}, {"bias", 17}});
  auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of());
  engine.average(0);  // begin together
  const double begin = world.now();
  for (int step = 0; step < steps; ++step) {
    pass_time(step_takes * (world.rank() == 1 ? times : 1));
    engine.ready(tensor_id(1));
    engine.ready(tensor_id(0));
    engine.wait();
  }
  const double mine = world.rank() == 1 ? 0 : world.now() - begin;
  return engine.average(mine) * world.size() / (world.size() - 1);
}

using averaging_pairs = compose<architecture::pair_averaging>;

TEST(PairAveraging, OthersKeepTheirPace) {
  if (processes->size() == 1) {
    GTEST_SKIP() << "one rank has no others";
  }
  double kept = 0;
  for (int again = 0; again < 5 && kept < 0.9; ++again) {  // while the host is too busy
    const double undisturbed = time_of_others<averaging_pairs>(1);
    kept = std::max(kept, undisturbed / time_of_others<averaging_pairs>(10));
  }
  EXPECT_GE(kept, 0.9);
}

TEST(PairAveraging, WhereMeansAreTakenTheyDoNot) {
  if (processes->size() == 1) {
    GTEST_SKIP() << "one rank has no others";
  }
  EXPECT_GT(time_of_others<compose<>>(10), 0.9 * 10 * steps * step_takes);
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) {
  return tutti::test::run_tests_over(tutti::test::processes, argc, argv);
}
