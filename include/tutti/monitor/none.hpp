#pragma once

#include "tutti/role/monitor.hpp"

namespace tutti::monitor {

/// Observes nothing and costs nothing.
struct none {
  using role = tutti::role::monitor;
  static constexpr bool observes = false;
  void record(event, std::uint32_t, seconds) {}
};
static_assert(monitor_policy<none>);

}  // namespace tutti::monitor
