#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "tutti/base/cost.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/base/units.hpp"

namespace tutti::fusion {

/// When each gradient exists, in seconds from the start of the backward pass: by the profile's
/// times, or in proportion to its elements, `per_element` seconds each where the profile is silent.
/// Throws usage_error if the profile has times of some tensors only.
inline std::vector<seconds> ready_times(std::span<const tensor_facts> backward,
                                        const profile& known, double per_element) {
  if (!known.backward.empty() && known.backward.size() < backward.size()) {
    throw usage_error(
        "the profile holds fewer backward times than the model has tensors. Fix: one for each "
        "tensor, in forward order, or none.");
  }
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
  for (const tensor_facts& each : backward) {
    now += known.backward.empty() ? per_element * static_cast<double>(each.elements)
                                  : known.backward[index(each.id)];
    ready.push_back(now);
  }
  return ready;
}

}  // namespace tutti::fusion
