#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tutti/role/monitor.hpp"

namespace tutti::monitor {

/// Counts events by type and adds up the time spent waiting.
/// Cost: one addition per event.
/// After: the statistics that KungFu's and Horovod's monitors print.
class counters {
 public:
  using role = tutti::role::monitor;
  static constexpr bool observes = true;

  void record(event what, std::uint32_t, seconds when) {
    ++counts_[static_cast<std::size_t>(what)];
    if (what == event::wait_begins) {
      begin_ = when;
    } else if (what == event::wait_ends) {
      waited_ += when - begin_;
    }
  }

  std::uint64_t count(event what) const { return counts_[static_cast<std::size_t>(what)]; }
  /// Seconds between wait_begins and wait_ends, for a trainer that waits on one thread.
  seconds waited() const { return waited_; }

 private:
  std::array<std::uint64_t, events> counts_{};
  seconds begin_{};
  seconds waited_{};
};
static_assert(monitor_policy<counters>);

}  // namespace tutti::monitor
