// Every named strategy on every network of apps/models, strategy/model/real/ranks:N, and on
// replayed ones, strategy/model/simulated/link/ranks:N.
//
//   bench-strategies --benchmark_filter='Horovod/.*ranks:2' --benchmark_repetitions=5

#include <benchmark/benchmark.h>

#include "build_note.hpp"

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
    return 1;
  }
  bench::note_build();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
