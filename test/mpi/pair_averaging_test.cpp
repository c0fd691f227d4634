// Nobody waits for a slow process: it computes ten times as long in code of its own, outside any
// call of the engine, and the others keep their pace. Where gradients are averaged the same check
// must fail.
#include "tutti/architecture/pair_averaging.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "support/mpi_world.hpp"
#include "support/training.hpp"
#include "tutti/architecture/bipartite_averaging.hpp"
#include "tutti/transport/mpi.hpp"

namespace tutti::test {
namespace {

transport::mpi* processes = nullptr;

constexpr int steps = 10;
constexpr double step_takes = 0.02;

/// On a core, as a model computes: whoever sleeps leaves it to the thread that answers.
void compute(double duration) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(duration);
  while (std::chrono::steady_clock::now() < end) {
  }
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
    compute(step_takes * (world.rank() == 1 ? times : 1));
    engine.ready(tensor_id(1));
    engine.ready(tensor_id(0));
    engine.wait();
  }
  const double mine = world.rank() == 1 ? 0 : world.now() - begin;
  double slowest = 0;
  MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

template <class Architecture>
void others_keep_their_pace() {
  if (processes->size() == 1) {
    GTEST_SKIP() << "one rank has no others";
  }
  using strategy = compose<Architecture>;
  double kept = 0;
  for (int again = 0; again < 8 && kept < 0.9; ++again) {  // while the host is too busy
    const double undisturbed = time_of_others<strategy>(1);
    kept = std::max(kept, undisturbed / time_of_others<strategy>(10));
  }
  EXPECT_GE(kept, 0.9);
}
TEST(PairAveraging, OthersKeepTheirPace) { others_keep_their_pace<architecture::pair_averaging>(); }
/// The slow rank is passive: others average with it while it computes.
TEST(BipartiteAveraging, OthersKeepTheirPace) {
  others_keep_their_pace<architecture::bipartite_averaging>();
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
