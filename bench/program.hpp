#pragma once

#include <benchmark/benchmark.h>
#include <cstdio>
#include <string>
#include <string_view>

namespace bench {

/// Warns, on the terminal and in the context that JSON output keeps, if this is not a Release
/// build, whose figures would mislead.
inline void note_build() {
  constexpr std::string_view build = TUTTI_BUILD_TYPE;
  benchmark::AddCustomContext("tutti_build", std::string(build));
  if (build != "Release") {
    benchmark::AddCustomContext("warning", "not a Release build: figures mean nothing");
    std::fprintf(stderr,
                 "***WARNING*** this is a %s build of tutti: figures mean nothing. "
                 "Fix: cmake --preset release\n",
                 build.empty() ? "plain" : TUTTI_BUILD_TYPE);
  }
}

/// Runs all registered benchmarks: the `main` of most programs here.
inline int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
    return 1;
  }
  note_build();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace bench
