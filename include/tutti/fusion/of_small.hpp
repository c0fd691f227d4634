#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "tutti/base/units.hpp"
#include "tutti/role/fusion.hpp"

namespace tutti::fusion {

/// Adjacent small tensors travel together, at most `tensors` of them; every other tensor travels
/// alone.
/// Plan: groups of adjacent small tensors, filled from the input on.
/// Cost: one copy in and one copy out per byte of small tensors; (tensors - groups) fewer
/// latencies.
/// After: tf_cnn_benchmarks' `--agg_small_grads_max_bytes`, whose default there is 0, for none, and
/// `--agg_small_grads_max_group`, whose loop packs two more than the flag says: its 10 are 12 here.
class of_small {
 public:
  using role = tutti::role::fusion;

  struct options {
    std::size_t bytes{32_KiB};
    std::size_t tensors{12};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("bytes", self.bytes, "the largest gradient that is small");
      visit("tensors", self.tensors, "small ones in a group, at most");
    }
  };

  constexpr of_small() = default;
  explicit constexpr of_small(const options& values) : options_(values) {}

  [[gnu::cold]] std::vector<std::size_t> group_ends(std::span<const tensor_facts> backward,
                                                    const profile&) const {
    std::vector<std::size_t> ends;
    std::size_t together = 0;  // small ones in the group that is open
    for (std::size_t left = backward.size(); left > 0; --left) {
      const bool small = backward[left - 1].elements * sizeof(float) <= options_.bytes;
      if (small && 0 < together && together < options_.tensors) {
        ++together;
      } else {
        ends.push_back(left);
        together = small ? 1 : 0;
      }
    }
    std::reverse(ends.begin(), ends.end());
    return ends;
  }

 private:
  options options_{};
};
static_assert(fusion_policy<of_small>);

}  // namespace tutti::fusion
