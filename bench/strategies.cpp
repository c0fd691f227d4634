// How long is an iteration? Every named strategy trains the networks mlp and cnn of apps/models
// (rows strategy/model/real/ranks:N), and replays ResNet-50 and BERT-Base (rows
// strategy/model/simulated/link/ranks:N).
//
//   bench-strategies --benchmark_filter='Horovod/.*ranks:2' --benchmark_repetitions=5

#include <benchmark/benchmark.h>

#include "program.hpp"

int main(int argc, char** argv) { return bench::run(argc, argv); }
