#pragma once

#include <algorithm>
#include <benchmark/benchmark.h>
#include <chrono>
#include <cstddef>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "tutti/benchmark.hpp"

namespace bench {

/// What is measured beside a kernel, or the kernel itself.
struct contender {
  std::string name{};
  std::function<void()> call{};
  double bytes{};  ///< that a call cannot do without
};

/// A kernel, the limit that it is held against, and other ways to the same result.
struct comparison {
  contender kernel{};
  contender limit{};
  std::vector<contender> peers{};
};

namespace detail {

inline double seconds_of(const contender& which, std::size_t calls) {
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t call = 0; call < calls; ++call) {
    which.call();
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() /
         static_cast<double>(calls);
}

/// Calls that make a batch: long enough to time, short enough that what is compared alternates
/// while the machine stays as it is.
inline std::size_t calls_for(const contender& which) {
  constexpr double batch_seconds = 1e-3;
  constexpr std::size_t most = 4096;
  seconds_of(which, 1);
  const double once = seconds_of(which, 1);
  return std::clamp(static_cast<std::size_t>(batch_seconds / once), std::size_t{1}, most);
}

/// Batches of one contender.
struct series {
  const contender* which;
  std::size_t calls;
  std::vector<double> seconds{};

  void take() { seconds.push_back(seconds_of(*which, calls)); }
  double median() const { return tutti::benchmark::detail::median(seconds); }
  double taken() const {
    return std::accumulate(seconds.begin(), seconds.end(), 0.0) * static_cast<double>(calls);
  }
};

/// The median over rounds: what disturbs a whole round disturbs both of its batches.
inline double ratio(const series& over, const series& under) {
  std::vector<double> each(under.seconds.size());
  std::ranges::transform(over.seconds, under.seconds, each.begin(), std::divides());
  return tutti::benchmark::detail::median(each);
}

}  // namespace detail

/// Batches of the kernel, its limit and its peers in turn, on one core, for as long as Google
/// Benchmark wants. Counters: GB_s of what the kernel must move, and limit_GB_s, both by their
/// median batch; of_limit, the median over rounds of the one over the other; of_NAME, the kernel's
/// time over that peer's, likewise.
inline void take_turns(benchmark::State& state, const comparison& compared) {
  constexpr double enough = 0.5;  // seconds for a peer, which may be a hundred times slower
  const tutti::benchmark::core_to_core_note cores(state);
  tutti::benchmark::stay_on_core(0);
  detail::series kernel{&compared.kernel, detail::calls_for(compared.kernel)};
  detail::series limit{&compared.limit, detail::calls_for(compared.limit)};
  std::vector<detail::series> peers;
  for (const contender& each : compared.peers) {
    peers.push_back({&each, detail::calls_for(each)});
  }
  while (state.KeepRunningBatch(static_cast<benchmark::IterationCount>(kernel.calls))) {
    limit.take();
    kernel.take();
    state.SetIterationTime(kernel.seconds.back() * static_cast<double>(kernel.calls));
    for (auto& each : peers) {
      if (each.taken() < enough) {
        each.take();
      }
    }
  }
  const double bytes = compared.kernel.bytes;
  state.counters["GB_s"] = bytes / kernel.median() * 1e-9;
  state.counters["limit_GB_s"] = compared.limit.bytes / limit.median() * 1e-9;
  state.counters["of_limit"] = detail::ratio(limit, kernel) * bytes / compared.limit.bytes;
  for (const auto& each : peers) {
    state.counters["of_" + each.which->name] = detail::ratio(kernel, each);
  }
}

}  // namespace bench
