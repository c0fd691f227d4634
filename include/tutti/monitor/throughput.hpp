#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tutti/base/plan.hpp"
#include "tutti/role/monitor.hpp"

namespace tutti::monitor {

/// Measures how fast chunks are exchanged since the last `take` or re-plan: their bytes, as floats,
/// over the time from the first chunk's start to the last one's end. Cost: two comparisons and an
/// addition per chunk. Of a launch that a fusion composes at run time, only the first chunk counts.
/// After: KungFu's StrategyStat (session/strategy.go), Mai et al., OSDI 2020.
class throughput {
 public:
  using role = tutti::role::monitor;
  static constexpr bool observes = true;

  void record(event what, std::uint32_t which, seconds when) {
    if (what == event::started && !begun_) {
      begun_ = true;
      first_start_ = when;
    } else if (what == event::finished) {
      last_end_ = std::max(last_end_, when);
      if (which >= finished_.size()) {
        finished_.resize(which + std::size_t{1});
      }
      ++finished_[which];
    }
  }

  /// Returns the bytes per second of the exchanges that have ended, and begins a new measurement.
  /// `of` is the engine's plan. Returns 0 if no exchange has ended under it.
  double take(const plan& of) {
    double bytes = 0;
    for (std::size_t chunk = 0; chunk < finished_.size(); ++chunk) {
      bytes += static_cast<double>(finished_[chunk]) * sizeof(float) *
               static_cast<double>(of.chunks[chunk].elements);
    }
    const seconds taken = last_end_ - first_start_;
    begun_ = false;
    last_end_ = 0;
    finished_.assign(finished_.size(), 0);
    return bytes > 0 && taken > 0 ? bytes / taken : 0;
  }
  /// Discards the measurement, because the chunks that follow are another plan's.
  void replanned() {
    begun_ = false;
    last_end_ = 0;
    finished_.clear();
  }

 private:
  bool begun_{};
  seconds first_start_{};
  seconds last_end_{};
  std::vector<std::uint64_t> finished_{};  ///< exchanges, by chunk
};
static_assert(monitor_policy<throughput>);

}  // namespace tutti::monitor
