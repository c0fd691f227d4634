#pragma once

#include <cstdint>
#include <vector>

#include "tutti/base/push_counts.hpp"

namespace common {

/// Returns how many pushes were applied at each staleness, up to the largest staleness that
/// occurred.
inline std::vector<std::uint64_t> by_staleness(const tutti::push_counts& counted) {
  std::vector<std::uint64_t> all(counted.staleness.begin(), counted.staleness.end());
  while (!all.empty() && all.back() == 0) {
    all.pop_back();
  }
  return all;
}

}  // namespace common
