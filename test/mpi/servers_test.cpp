// Servers between processes: a hundred thousand pushes take effect once each, and beside a worker
// that takes ten times as long the others keep their pace, unless they wait for all.
#include <algorithm>
#include <cstddef>
#include <gtest/gtest.h>
#include <mpi.h>
#include <vector>

#include "support/deadlines.hpp"
#include "support/ledger.hpp"
#include "support/mpi_world.hpp"
#include "support/training.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/transport/mpi.hpp"

namespace tutti::test {
namespace {

transport::mpi* processes = nullptr;

template <class Consistency, class UpdatedBy>
using served = compose<architecture::parameter_server<Consistency, UpdatedBy>>;

int workers() { return processes->size() - 1; }

/// Each of up to four workers pushes each of 125 tensors 200 times.
template <class Strategy>
void pushes_each_once() {
  if (workers() == 0) {
    GTEST_SKIP() << "a server leaves no worker";
  }
  constexpr int pushes = 200;
  constexpr std::size_t tensors = 125;
  ledger::shared().take();
  arena memory(ledger_declarations(tensors));
  writes_down values;
  values.learning_rate = 1;
  auto engine = make_engine<Strategy>(*processes, memory.tensors(), values);
  if (engine.serves()) {
    engine.serve();
    if constexpr (facts::owns_parameters<typename Strategy::architecture>) {
      expect_no_gap(ledger::shared().take(), tensors, workers(), pushes);
    }
    EXPECT_GE(engine.report().pushes.taken(), tensors * pushes * static_cast<std::size_t>(workers()));
    return;
  }
  push_at_random(engine, memory, 1, pushes + 1);
  read_servers(engine, memory);
  if (engine.worker() == 0) {
    expect_each_once(memory.parameters(), workers(), pushes);
  }
}
TEST(ExactlyOnce, GradientsOfProcesses) {
  pushes_each_once<served<consistency::asynchronous, updated_by::servers>>();
}
TEST(ExactlyOnce, DifferencesOfProcesses) {
  pushes_each_once<served<consistency::asynchronous, updated_by::workers>>();
}

constexpr int steps = 20;
constexpr double step_takes = 0.02;

/// Seconds that the slowest of the workers but 1 needs for its steps while worker 1 is `times` as
/// slow, which takes no more of them than fit.
template <class Strategy>
double time_of_others(int times, engine_options<Strategy> set) {
  auto& world = *processes;
  arena memory(std::vector<arena::declaration>{{"weight", 1 << 14}, {"bias", 17}});
  double mine = 0;
  auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(), set);
  if (engine.serves()) {
    engine.serve();
  } else {
    engine.average(0);  // begin together
    const bool slow = engine.worker() == 1;
    const double begin = world.now();
    for (int step = 0; step < (slow ? steps / times : steps); ++step) {
      sleep_for(step_takes * (slow ? times : 1));
      engine.ready(tensor_id(1));
      engine.ready(tensor_id(0));
      engine.wait();
    }
    mine = slow ? 0 : world.now() - begin;
  }
  double slowest = 0;
  MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

/// The share of their own pace that the others keep.
template <class Strategy>
double kept(engine_options<Strategy> set = {}) {
  double best = 0;
  for (int again = 0; again < 8 && best < 0.9; ++again) {  // while the host is too busy
    const double undisturbed = time_of_others<Strategy>(1, set);
    best = std::max(best, undisturbed / time_of_others<Strategy>(10, set));
  }
  return best;
}

TEST(SlowWorker, HoldsNobodyUnderAsynchronousServersAndBackups) {
  if (workers() < 3) {
    GTEST_SKIP() << "one of two workers is no majority";
  }
  using asynchronous = served<consistency::asynchronous, updated_by::servers>;
  EXPECT_GE(kept<asynchronous>(), 0.9);
  using with_backups = served<consistency::backup_workers, updated_by::servers>;
  engine_options<with_backups> set;
  set.architecture.consistency.backups = 1;
  EXPECT_GE(kept<with_backups>(set), 0.9);
}

TEST(SlowWorker, HoldsAllWhoNeedItsGradient) {
  if (workers() < 3) {
    GTEST_SKIP() << "one of two workers is no majority";
  }
  using with_backups = served<consistency::backup_workers, updated_by::servers>;
  const double its_steps = steps / 10 * 10 * step_takes;
  EXPECT_GT(time_of_others<with_backups>(10, {}), 1.5 * its_steps);  // until it has left
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) {
  return tutti::test::run_tests_over(tutti::test::processes, argc, argv);
}
