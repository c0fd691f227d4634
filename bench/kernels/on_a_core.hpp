#pragma once

#include <benchmark/benchmark.h>
#include <cstddef>
#include <ctime>

#include "kernels/in_turn.hpp"
#include "tutti/benchmark.hpp"

namespace bench {

/// Returns the processor time of this thread, which does not include what other processes use.
inline double seconds_of_this_thread() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Compares contenders on one core of the host, by processor time.
inline void take_turns_on_a_core(benchmark::State& state, const comparison& compared) {
  const tutti::benchmark::core_to_core_note cores(state);
  tutti::benchmark::stay_on_core(0);
  take_turns(state, compared, [](const contender& which, std::size_t calls) {
    const double begin = seconds_of_this_thread();
    for (std::size_t call = 0; call < calls; ++call) {
      which.call();
    }
    return (seconds_of_this_thread() - begin) / static_cast<double>(calls);
  });
}

}  // namespace bench
