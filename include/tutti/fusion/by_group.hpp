#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "tutti/base/cost.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/base/tensor_rule.hpp"
#include "tutti/fusion/none.hpp"
#include "tutti/role/fusion.hpp"

namespace tutti::fusion {

/// Groups that the user names. The tensors that a rule chooses always travel together, neighbours
/// or not, and tensors that no rule chooses travel as the fusion `F` says:
///   by_group<none, named<"conv1.*", "bn1.*">, named<"*.bias">>
/// A tensor belongs to the first rule that chooses it; rules have their default options. If F
/// decides at run time, a group is ready when all of it is, whatever its size, and other tensors
/// may join it in a launch.
/// Plan: a bucket for each group, of its tensors in backward order. Where F keeps element types
/// apart, gradients of each type make a group of their own.
/// Cost: one copy in and one copy out per byte of a group, because its tensors may lie apart in
/// memory.
/// After: Horovod's `DistributedOptimizer(groups=[[...], ...])`, which cuts a group at its buffers'
/// threshold.
template <fusion_policy F, tensor_rule... Rules>
class by_group : public F {
 public:
  using F::F;

  /// Returns the number of the tensor's rule, from 1 on; 0 if no rule chooses it.
  constexpr std::size_t group_of(const tensor_facts& tensor) const {
    std::size_t place = 0;
    const bool chosen = ((++place, Rules{}(tensor)) || ...);
    return chosen ? place : 0;
  }

  [[gnu::cold]] std::vector<std::size_t> group_ends(std::span<const tensor_facts> backward,
                                                    const profile& known) const {
    std::vector<std::size_t> ends;
    for (std::size_t begin = 0; begin < backward.size();) {
      const std::size_t group = group_of(backward[begin]);
      std::size_t end = begin + 1;
      while (end < backward.size() && group_of(backward[end]) == group) {
        ++end;
      }
      if (group != 0) {
        ends.push_back(end);
      } else {
        for (const std::size_t each : F::group_ends(backward.subspan(begin, end - begin), known)) {
          ends.push_back(begin + each);
        }
      }
      begin = end;
    }
    return ends;
  }
};
static_assert(fusion_policy<by_group<none, named<"*.bias">>>);

}  // namespace tutti::fusion
