#pragma once

#include <benchmark/benchmark.h>
#include <cstddef>
#include <ctime>

#include "kernels/in_turn.hpp"
#include "tutti/benchmark.hpp"

namespace bench {

/// Seconds that this thread has had of a core: what others take of it meanwhile does not count.
inline double seconds_of_this_thread() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Compares them on one core of the host, by the time that they have of it.
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
