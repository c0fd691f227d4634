// Every named strategy on every network of apps/models, strategy/model/real/ranks:N, and on
// replayed ones, strategy/model/simulated/link/ranks:N.
//
//   bench-strategies --benchmark_filter='Horovod/.*ranks:2' --benchmark_repetitions=5

#include <benchmark/benchmark.h>

#include "program.hpp"

int main(int argc, char** argv) { return bench::run(argc, argv); }
