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

/// Batches of one contender, by a clock that answers the seconds of one of so many calls in a row.
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
  /// Long enough to time, short enough that what is compared alternates while the machine stays as
  /// it is.
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

/// The median over rounds: what disturbs a whole round disturbs both of its batches.
template <class Clock>
double ratio(const series<Clock>& over, const series<Clock>& under) {
  std::vector<double> each(under.seconds().size());
  std::ranges::transform(over.seconds(), under.seconds(), each.begin(), std::divides());
  return tutti::median(each);
}

}  // namespace detail

/// Batches of the kernel, its limit and its peers in turn, for as long as Google Benchmark wants;
/// `seconds_of(contender, calls)` times one. Counters: GB_s of what the kernel must move, and
/// limit_GB_s, both by their median batch; of_limit, the median over rounds of the one over the
/// other; of_NAME, the kernel's time over that peer's, likewise.
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
