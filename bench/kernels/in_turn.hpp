#pragma once

#include <algorithm>
#include <benchmark/benchmark.h>
#include <cstddef>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "tutti/base/median.hpp"

namespace bench {

/// A kernel, or something that is measured beside it.
struct contender {
  std::string name{};
  std::function<void()> call{};
  double bytes{};  ///< that a call must read and write at least
};

/// A kernel, the limit that it is compared with, and other ways to the same result.
struct comparison {
  contender kernel{};
  contender limit{};
  std::vector<contender> peers{};
};

namespace detail {

/// Timed batches of one contender. `Clock` returns the seconds of one call, averaged over so many.
template <class Clock>
class series {
 public:
  series(const contender& which, const Clock& seconds_of)
      : which_(&which), seconds_of_(&seconds_of), calls_(calls_of_a_batch()) {}

  void take() { seconds_.push_back((*seconds_of_)(*which_, calls_)); }

  const contender& which() const { return *which_; }
  std::size_t calls() const { return calls_; }
  const std::vector<double>& seconds() const { return seconds_; }
  double last_batch() const { return seconds_.back() * static_cast<double>(calls_); }
  double taken() const {
    return std::accumulate(seconds_.begin(), seconds_.end(), 0.0) * static_cast<double>(calls_);
  }

 private:
  /// Returns how many calls make a batch: enough to time, but so few that the contenders alternate
  /// before the machine changes its speed.
  std::size_t calls_of_a_batch() const {
    constexpr double batch_seconds = 1e-3;
    constexpr std::size_t most = 4096;
    (*seconds_of_)(*which_, 1);
    const double once = (*seconds_of_)(*which_, 1);
    return std::clamp(static_cast<std::size_t>(batch_seconds / once), std::size_t{1}, most);
  }

  const contender* which_;
  const Clock* seconds_of_;
  std::size_t calls_;
  std::vector<double> seconds_{};
};

/// Returns the median ratio over rounds. A disturbance of a round affects both of its batches.
template <class Clock>
double ratio(const series<Clock>& over, const series<Clock>& under) {
  std::vector<double> each(under.seconds().size());
  std::ranges::transform(over.seconds(), under.seconds(), each.begin(), std::divides());
  return tutti::median(each);
}

}  // namespace detail

/// Measures batches of the kernel, its limit and its peers in turn, for as long as Google Benchmark
/// asks. `seconds_of(contender, calls)` times one batch. Counters: GB_s and limit_GB_s are the
/// rates of the bytes that kernel and limit must move, by their median batches. of_limit is the
/// median over rounds of the kernel's rate over the limit's. of_NAME is the median over rounds of
/// the kernel's time over that peer's.
template <class Clock>
void take_turns(benchmark::State& state, const comparison& compared, const Clock& seconds_of) {
  constexpr double enough = 0.5;  // seconds for a peer, which may be a hundred times slower
  detail::series kernel(compared.kernel, seconds_of);
  detail::series limit(compared.limit, seconds_of);
  std::vector<detail::series<Clock>> peers;
  for (const contender& each : compared.peers) {
    peers.emplace_back(each, seconds_of);
  }
  while (state.KeepRunningBatch(static_cast<benchmark::IterationCount>(kernel.calls()))) {
    limit.take();
    kernel.take();
    state.SetIterationTime(kernel.last_batch());
    for (auto& each : peers) {
      if (each.taken() < enough) {
        each.take();
      }
    }
  }
  const double bytes = compared.kernel.bytes;
  state.counters["GB_s"] = bytes / tutti::median(kernel.seconds()) * 1e-9;
  state.counters["limit_GB_s"] = compared.limit.bytes / tutti::median(limit.seconds()) * 1e-9;
  state.counters["of_limit"] = detail::ratio(limit, kernel) * bytes / compared.limit.bytes;
  for (const auto& each : peers) {
    state.counters["of_" + each.which().name] = detail::ratio(kernel, each);
  }
}

}  // namespace bench
