// What does one slow process cost the others? Every step computes for 10 ms, and in one process ten
// times as long. For each strategy the benchmark shows what share of its own pace the slowest of
// the other workers keeps: 1 if nobody waits for the slow process, a tenth if all do. Computing is
// imitated by sleeping, as a host does while its GPU computes.
//
//   mpirun -np 4 bench-stragglers --benchmark_filter='SGP|ADPSGD'

#include <algorithm>
#include <benchmark/benchmark.h>
#include <chrono>
#include <cstddef>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "program.hpp"
#include "tutti/strategies/ad_psgd.hpp"
#include "tutti/strategies/bsp.hpp"
#include "tutti/strategies/d_psgd.hpp"
#include "tutti/strategies/easgd.hpp"
#include "tutti/strategies/kungfu.hpp"
#include "tutti/strategies/mxnet.hpp"
#include "tutti/strategies/sgp.hpp"
#include "tutti/strategies/sync_replicas.hpp"
#include "tutti/transport/mpi.hpp"
#include "tutti/tutti.hpp"

namespace bench {

namespace {

constexpr int steps = 20;
constexpr double step_takes = 0.01;
constexpr double times_as_slow = 10;
constexpr int slow = 1;

void compute(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

/// Returns the seconds that a worker takes for its steps, or 0 on the slow worker and on servers.
template <class Strategy>
double own_time(tutti::transport::mpi& world, const tutti::engine_options<Strategy>& set,
                double times) {
  tutti::arena memory(std::vector<tutti::arena::declaration>{{"weight", 1 << 16}, {"bias", 17}});
  auto engine = tutti::make_engine<Strategy>(world, memory.tensors(),
                                             tutti::optimizer::sgd{.learning_rate = 0.1f}, set);
  if (engine.serves()) {
    engine.serve();
    return 0;
  }
  engine.average(0);  // so that all begin together
  const double begin = world.now();
  for (int step = 0; step < steps; ++step) {
    compute(step_takes * (engine.worker() == slow ? times : 1));
    engine.ready(tutti::tensor_id(1));
    engine.ready(tutti::tensor_id(0));
    engine.wait();
  }
  return engine.worker() == slow ? 0 : world.now() - begin;
}

/// Returns the time of the slowest worker, not counting the slow one.
template <class Strategy>
double time_of_others(tutti::transport::mpi& world, const tutti::engine_options<Strategy>& set,
                      double times) {
  const double mine = own_time<Strategy>(world, set, times);
  double slowest = 0;
  MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

template <class Strategy>
void add(tutti::transport::mpi& world, tutti::engine_options<Strategy> set = {}) {
  const std::string name = std::string(Strategy::name) + "/ranks:" + std::to_string(world.size());
  const auto keeps_pace = [&world, set](benchmark::State& state) {
    for (auto _ : state) {
      const double alone = time_of_others<Strategy>(world, set, 1);
      const double beside = time_of_others<Strategy>(world, set, times_as_slow);
      state.SetIterationTime(beside / steps);
      state.counters["own_ms"] = alone / steps * 1e3;
      state.counters["kept"] = alone / beside;
    }
  };
  benchmark::RegisterBenchmark(name.c_str(), keeps_pace)
      ->UseManualTime()
      ->Iterations(1)
      ->Unit(benchmark::kMillisecond);
}

}  // namespace

}  // namespace bench

int main(int argc, char** argv) {
  tutti::transport::mpi world;
  std::vector<char*> flags(argv, argv + argc);
  std::string to_no_file = "--benchmark_out=";
  if (world.rank() != 0) {
    flags.push_back(to_no_file.data());  // Google Benchmark takes the last of several
  }
  int count = static_cast<int>(flags.size());
  benchmark::Initialize(&count, flags.data());
  if (benchmark::ReportUnrecognizedArguments(count, flags.data())) {
    return 1;
  }
  if (world.size() < 3) {
    std::fprintf(stderr,
                 "bench-stragglers: one rank is slow, one may serve, and one keeps its "
                 "pace. Fix: mpirun -np 3 or more\n");
    return 1;
  }
  bench::add<tutti::strategies::BSP>(world);
  bench::add<tutti::strategies::DPSGD>(world);
  bench::add<tutti::strategies::SGP>(world);
  bench::add<tutti::strategies::PairAveraging>(world);
  bench::add<tutti::strategies::ADPSGD>(world);
  bench::add<tutti::strategies::AsyncEASGD>(world);
  bench::add<tutti::strategies::MXNetDistAsync>(world);
  tutti::engine_options<tutti::strategies::SyncReplicas> one_backup;
  one_backup.architecture.consistency.backups = 1;
  bench::add<tutti::strategies::SyncReplicas>(world, one_backup);
  if (world.rank() == 0) {
    bench::note_build();
    benchmark::RunSpecifiedBenchmarks();
  } else {
    std::ostringstream unread;
    benchmark::ConsoleReporter silent;
    silent.SetOutputStream(&unread);
    silent.SetErrorStream(&unread);
    benchmark::RunSpecifiedBenchmarks(&silent);
  }
  benchmark::Shutdown();
}
