#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "tutti/base/units.hpp"
#include "tutti/role/fusion.hpp"

namespace tutti::fusion {

/// Where the tensor goes that takes a group to its limit.
enum class crossing {
  in,   ///< into the group, which then closes
  out,  ///< into the next group, if it would exceed the limit; one above the limit travels alone
};

/// Returns the enumerators' names, in their order.
constexpr std::array<std::string_view, 2> names(crossing) { return {"in", "out"}; }

/// The parameter with which the first group begins.
enum class filled_from { last, first };
constexpr std::array<std::string_view, 2> names(filled_from) { return {"last", "first"}; }

/// The value of `elements` that leaves the limit to `bytes`.
inline constexpr std::size_t by_bytes = std::numeric_limits<std::size_t>::max();

/// Adjacent tensors travel together until they hold `bytes` bytes or, if `elements` is set, that
/// many elements instead.
/// Plan: groups of adjacent tensors, in the order in which they become ready or, with
/// filled_from::first, in that of their declaration. With a limit of 0 every tensor travels alone.
/// Cost: one copy in and one copy out per byte that is fused; (tensors - groups) fewer latencies.
/// After: `in`: Shi et al., "MG-WFBP" (threshold) and PyTorch DDP; `out`: Sergeev and Del Balso,
/// "Horovod", 2018.
class up_to {
 public:
  using role = tutti::role::fusion;

  struct options {
    std::size_t bytes{64_MiB};
    std::size_t elements{by_bytes};
    std::size_t first_bytes{0};
    fusion::crossing crossing{fusion::crossing::in};
    filled_from from{filled_from::last};
    fusion_types types{fusion_types::together};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("bytes", self.bytes, "close a group at this many bytes; 0: every tensor alone");
      visit("elements", self.elements,
            "limit in elements, in place of bytes; 0: every tensor alone");
      visit("first_bytes", self.first_bytes, "limit of the first group; 0: the same as for others");
      visit("crossing", self.crossing,
            "whether the tensor that reaches the limit goes in or out of the group");
      visit("from", self.from,
            "whether groups are filled from the last parameter on, as gradients arrive, or from "
            "the first");
      visit("types", self.types,
            "whether gradients of different element types travel together or apart");
    }
  };

  constexpr up_to() = default;
  explicit constexpr up_to(const options& values) : options_(values) {}

  [[gnu::cold]] std::vector<std::size_t> group_ends(std::span<const tensor_facts> backward,
                                                    const profile&) const {
    if (options_.from == filled_from::last) {
      return ends_of_groups(backward);
    }
    std::vector<std::size_t> ends = ends_of_groups(std::vector(backward.rbegin(), backward.rend()));
    for (std::size_t& each : ends) {
      each = backward.size() - each;  // is now where a group begins
    }
    std::ranges::reverse(ends);
    if (!ends.empty()) {
      ends.erase(ends.begin());
      ends.push_back(backward.size());
    }
    return ends;
  }

 private:
  [[gnu::cold]] std::vector<std::size_t> ends_of_groups(
      std::span<const tensor_facts> tensors) const {
    std::vector<std::size_t> ends;
    std::size_t held = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const std::size_t limit = limit_of_group(ends.size());
      const std::size_t bytes = tensors[i].elements * sizeof(float);
      const bool closes_before = options_.crossing == crossing::out && held + bytes > limit;
      if (const std::size_t begin = ends.empty() ? 0 : ends.back(); closes_before && begin != i) {
        ends.push_back(i);
        held = 0;
      }
      held += bytes;
      if (closes_after(held, limit_of_group(ends.size()))) {
        ends.push_back(i + 1);
        held = 0;
      }
    }
    if (!tensors.empty() && (ends.empty() || ends.back() != tensors.size())) {
      ends.push_back(tensors.size());
    }
    return ends;
  }

  constexpr std::size_t limit_of_group(std::size_t group) const {
    if (group == 0 && options_.first_bytes != 0) {
      return options_.first_bytes;
    }
    if (options_.elements == by_bytes) {
      return options_.bytes;
    }
    return std::min(options_.elements, by_bytes / sizeof(float)) * sizeof(float);
  }

  constexpr bool closes_after(std::size_t held, std::size_t limit) const {
    return limit == 0 || (options_.crossing == crossing::in && held >= limit);
  }

  options options_{};
};
static_assert(fusion_policy<up_to>);

}  // namespace tutti::fusion
