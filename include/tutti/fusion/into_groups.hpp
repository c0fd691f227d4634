#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "tutti/role/fusion.hpp"

namespace tutti::fusion {

/// Makes a given number of groups with equally many tensors, whatever the tensors' sizes.
/// Plan: groups of neighbours. If the tensors do not divide evenly, the groups nearest the input
/// have one more. With 0 groups, or more than there are tensors, every tensor travels alone.
/// Cost: one copy in and one copy out per byte that is fused.
/// After: Horovod's `DistributedOptimizer(groups=n)`.
class into_groups {
 public:
  using role = tutti::role::fusion;

  struct options {
    std::size_t groups{1};
    fusion_types types{fusion_types::together};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("groups", self.groups, "so many, of as many tensors; 0: every tensor alone");
      visit("types", self.types, "gradients of several element types travel together or apart");
    }
  };

  constexpr into_groups() = default;
  explicit constexpr into_groups(const options& values) : options_(values) {}

  [[gnu::cold]] std::vector<std::size_t> group_ends(std::span<const tensor_facts> backward,
                                                    const profile&) const {
    const std::size_t tensors = backward.size();
    const std::size_t groups = options_.groups == 0 ? tensors : std::min(options_.groups, tensors);
    std::vector<std::size_t> ends;
    for (std::size_t group = 0; group < groups; ++group) {
      const bool has_one_more = groups - group <= tensors % groups;
      const std::size_t begin = ends.empty() ? 0 : ends.back();
      ends.push_back(begin + tensors / groups + (has_one_more ? 1 : 0));
    }
    return ends;
  }

 private:
  options options_{};
};
static_assert(fusion_policy<into_groups>);

}  // namespace tutti::fusion
