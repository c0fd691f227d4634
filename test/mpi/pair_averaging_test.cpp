// Nobody waits for a slow process: it computes ten times as long in code of its own, outside any
// call of the engine, and the others keep their pace. Where gradients are averaged the same check
// must fail.
#include "tutti/architecture/pair_averaging.hpp"

#include <chrono>
#include <cstddef>
#include <gtest/gtest.h>
#include <vector>

#include "support/mpi_world.hpp"
#include "support/training.hpp"
#include "tutti/architecture/bipartite_averaging.hpp"
#include "tutti/base/median.hpp"
#include "tutti/transport/mpi.hpp"

namespace tutti::test {
namespace {

transport::mpi* processes = nullptr;

constexpr int steps = 20;
constexpr double step_takes = 0.02;
constexpr int times = 10;

/// On a core, as a model computes: whoever sleeps leaves it to the thread that answers.
void compute(double duration) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(duration);
  while (std::chrono::steady_clock::now() < end) {
  }
}

/// Seconds that the slowest of the ranks but 1 needs for its steps. Rank 1 takes `its_steps`, each
/// `slowdown` times as long.
template <class Engine>
double time_of_others(Engine& engine, int its_steps, int slowdown) {
  const bool is_slow = engine.worker() == 1;
  engine.average(0);  // begin together
  const double begin = processes->now();
  for (int step = 0; step < (is_slow ? its_steps : steps); ++step) {
    compute(step_takes * (is_slow ? slowdown : 1));
    engine.ready(tensor_id(1));
    engine.ready(tensor_id(0));
    engine.wait();
  }
  const double mine = is_slow ? 0 : processes->now() - begin;
  double slowest = 0;
  MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

template <class Strategy, class Check>
void train_on_some(Check check) {
  if (processes->size() == 1) {
    GTEST_SKIP() << "one rank has no others";
  }
  arena memory(std::vector<arena::declaration>{{"weight", 1 << 16}, {"bias", 17}});
  auto engine = make_engine<Strategy>(*processes, memory.tensors(), optimizer_of());
  check(engine);
}

/// In turns, so that what else the host does counts on both sides. The slow rank computes for half
/// as long again as the others need.
template <class Architecture>
void others_keep_their_pace() {
  train_on_some<compose<Architecture>>([](auto& engine) {
    std::vector<double> kept;
    for (int turn = 0; turn < 9; ++turn) {
      const double undisturbed = time_of_others(engine, steps, 1);
      kept.push_back(undisturbed / time_of_others(engine, steps / times * 3 / 2, times));
    }
    EXPECT_GE(median(kept), 0.9) << testing::PrintToString(kept);
  });
}
TEST(PairAveraging, OthersKeepTheirPace) { others_keep_their_pace<architecture::pair_averaging>(); }
/// The slow rank is passive: others average with it while it computes.
TEST(BipartiteAveraging, OthersKeepTheirPace) {
  others_keep_their_pace<architecture::bipartite_averaging>();
}

TEST(PairAveraging, WhereMeansAreTakenTheyDoNot) {
  train_on_some<compose<>>([](auto& engine) {
    EXPECT_GT(time_of_others(engine, steps, times), 0.9 * times * steps * step_takes);
  });
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) {
  return tutti::test::run_tests_over(tutti::test::processes, argc, argv);
}
