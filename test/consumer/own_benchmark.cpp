// A user's strategy in a Google Benchmark program: one line registers it.
#include <tutti/benchmark.hpp>
#include <tutti/fusion/all.hpp>
#include <tutti/tutti.hpp>

// example-begin benchmark
using Mine = tutti::compose<tutti::fusion::all>;

const auto mine = tutti::benchmark::add<Mine>("mine");

BENCHMARK_MAIN();
// example-end
