#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <vector>

#include "tutti/base/cost.hpp"
#include "tutti/base/options.hpp"
#include "tutti/base/tensor.hpp"

namespace tutti {

namespace role {
struct fusion {};
}  // namespace role

/// A fusion says which tensors travel together.
///
/// `group_ends(backward, profile)`: tensors come in backward order; the answer holds, for each
/// group, one past its last tensor, so the last entry is `backward.size()` (and there is none if
/// there are no tensors). A pure function: every rank must get the same answer.
template <class F>
concept fusion_policy = std::same_as<typename F::role, role::fusion> &&
    requires(const F fusion, std::span<const tensor_facts> backward, const profile& known) {
  { fusion.group_ends(backward, known) } -> std::same_as<std::vector<std::size_t>>;
};

}  // namespace tutti
