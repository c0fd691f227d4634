// Registers a user's strategy in a Google Benchmark program by one line.
#include <tutti/benchmark.hpp>
#include <tutti/compression/top_k.hpp>
#include <tutti/fusion/all.hpp>
#include <tutti/tutti.hpp>

// example-begin benchmark
using Mine = tutti::compose<tutti::fusion::all>;

const auto mine = tutti::benchmark::add<Mine>("mine");

BENCHMARK_MAIN();
// example-end

// A strategy that is refused is reported in its row, and the others run.
const auto refused = tutti::benchmark::add_simulated<tutti::compose<tutti::compression::top_k>>(
    "refused", {{.model = "none", .link = "8Gbit", .nic = {1e9, 0}, .workers = 2}},
    {.compression = {.density = 3}});
