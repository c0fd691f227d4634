#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "tutti/base/assert.hpp"
#include "tutti/base/cost.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/base/units.hpp"

namespace tutti {

/// Returns when each gradient is ready, in seconds from the start of the backward pass. If the
/// profile has times, it has one for each tensor, and those of tensors that are not in `backward`
/// count, too, because they are computed in between. Otherwise a gradient takes time in proportion
/// to its elements, `per_element` seconds each unless the profile has a total.
[[gnu::cold]] inline std::vector<seconds> ready_times(std::span<const tensor_facts> backward,
                                                      const profile& known, double per_element) {
  TUTTI_ASSERT(known.backward.empty() || backward.empty() ||
                   known.backward.size() > index(backward.front().id),
               "a profile needs a time for each tensor");
  if (known.backward_total > 0) {
    std::size_t elements = 0;
    for (const tensor_facts& each : backward) {
      elements += each.elements;
    }
    per_element = elements == 0 ? 0 : known.backward_total / static_cast<double>(elements);
  }
  std::vector<seconds> ready;
  ready.reserve(backward.size());
  seconds now = 0;
  std::size_t behind = known.backward.size();
  for (const tensor_facts& each : backward) {
    if (known.backward.empty()) {
      now += per_element * static_cast<double>(each.elements);
    }
    while (behind > index(each.id)) {
      now += known.backward[--behind];
    }
    ready.push_back(now);
  }
  return ready;
}

}  // namespace tutti
