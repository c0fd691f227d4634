#pragma once

#include <benchmark/benchmark.h>
#include <chrono>
#include <cstddef>

#include "kernels/in_turn.hpp"
#include "tutti/benchmark.hpp"

namespace bench {

/// Compares them on one core of the host, by its clock.
inline void take_turns_on_a_core(benchmark::State& state, const comparison& compared) {
  using clock = std::chrono::steady_clock;
  const tutti::benchmark::core_to_core_note cores(state);
  tutti::benchmark::stay_on_core(0);
  take_turns(state, compared, [](const contender& which, std::size_t calls) {
    const auto begin = clock::now();
    for (std::size_t call = 0; call < calls; ++call) {
      which.call();
    }
    return std::chrono::duration<double>(clock::now() - begin).count() / static_cast<double>(calls);
  });
}

}  // namespace bench
