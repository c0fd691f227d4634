#pragma once

#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

#include "tutti/role/fusion.hpp"

namespace tutti::fusion {

/// Every tensor travels alone, as soon as it is ready.
/// Plan: one group for each tensor.
/// Cost: one latency a tensor; nothing is copied.
/// After: wait-free back-propagation, Zhang et al., "Poseidon", 2017.
struct none {
  using role = tutti::role::fusion;

  [[gnu::cold]] std::vector<std::size_t> group_ends(std::span<const tensor_facts> backward,
                                                    const profile&) const {
    std::vector<std::size_t> ends(backward.size());
    std::iota(ends.begin(), ends.end(), std::size_t{1});
    return ends;
  }
};
static_assert(fusion_policy<none>);

}  // namespace tutti::fusion
