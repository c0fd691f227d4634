#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "tutti/role/fusion.hpp"

namespace tutti::fusion {

/// The whole model travels as one message, after the last gradient.
/// Plan: one group of all tensors.
/// Cost: one latency a step, and no communication under the backward pass.
/// After: bulk-synchronous data parallelism with one flat gradient.
struct all {
  using role = tutti::role::fusion;

  [[gnu::cold]] std::vector<std::size_t> group_ends(std::span<const tensor_facts> backward,
                                                    const profile&) const {
    if (backward.empty()) {
      return {};
    }
    return {backward.size()};
  }
};
static_assert(fusion_policy<all>);

}  // namespace tutti::fusion
