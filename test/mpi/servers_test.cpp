// Servers between processes: a hundred thousand pushes take effect once each, and a late worker
// holds up no other.
#include <cstddef>
#include <gtest/gtest.h>
#include <vector>

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

/// Up to four workers each push each of 125 tensors 200 times.
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
    EXPECT_GE(engine.report().pushes.taken(),
              tensors * pushes * static_cast<std::size_t>(workers()));
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

/// Worker 1 begins when worker 0 has ended its steps, so the other workers must not need anything
/// of worker 1.
template <class Strategy>
void others_end_before_one_begins(engine_options<Strategy> set = {}) {
  if (workers() < 2) {
    GTEST_SKIP() << "one worker has no others";
  }
  auto& world = *processes;
  arena memory(std::vector<arena::declaration>{{"weight", 1 << 14}, {"bias", 17}});
  auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(), set);
  if (engine.serves()) {
    engine.serve();
    return;
  }
  if (engine.worker() == 1) {
    MPI_Recv(nullptr, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  for (int step = 0; step < 20; ++step) {
    engine.ready(tensor_id(1));
    engine.ready(tensor_id(0));
    engine.wait();
  }
  if (engine.worker() == 0) {
    MPI_Send(nullptr, 0, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
  }
}

TEST(SlowWorker, HoldsNobodyUnderAsynchronousServers) {
  others_end_before_one_begins<served<consistency::asynchronous, updated_by::servers>>();
  others_end_before_one_begins<served<consistency::asynchronous, updated_by::workers>>();
}
TEST(SlowWorker, HoldsNobodyBesideABackup) {
  using with_backups = served<consistency::backup_workers, updated_by::servers>;
  engine_options<with_backups> set;
  set.architecture.consistency.backups = 1;
  others_end_before_one_begins(set);
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) {
  return tutti::test::run_tests_over(tutti::test::processes, argc, argv);
}
