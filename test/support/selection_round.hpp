#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tutti/kernels/elements.hpp"
#include "tutti/kernels/selection_steps.hpp"

namespace tutti::test {

namespace steps = kernels::steps;

/// One round of a device's search for the threshold, by a host that does each thread's share.
inline steps::search search_round(const steps::source& from, steps::search known, unsigned round) {
  std::vector<std::uint32_t> count(steps::bins, 0);
  for (std::size_t i = 0; i < from.n; ++i) {
    std::uint32_t bin = 0;
    if (steps::counts(kernels::key_of(from.values[i]), known, round, bin)) {
      ++count[bin];
    }
  }
  std::vector<std::uint32_t> of_lanes(steps::lanes);
  for (std::uint32_t lane = 0; lane < steps::lanes; ++lane) {
    of_lanes[lane] = steps::counted_by(lane, count.data());
  }
  return steps::narrowed(known, round, count.data(), of_lanes.data());
}

}  // namespace tutti::test
