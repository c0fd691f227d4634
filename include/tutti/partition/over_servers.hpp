#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <vector>

#include "tutti/role/partition.hpp"

namespace tutti::partition {

/// Cuts a large bucket into one part for each server, so that no server owns all of it.
/// Plan: equal parts, their ends rounded to whole elements. Buckets of fewer elements than `bound`
/// stay whole, and so do all buckets if the architecture has no servers.
/// Cost: one latency more for each cut; nothing is copied.
/// After: MXNet's kvstore (`MXNET_KVSTORE_BIGARRAY_BOUND`).
class over_servers {
 public:
  using role = tutti::role::partition;

  struct options {
    std::size_t bound{1'000'000};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("bound", self.bound, "cut a bucket of so many elements or more, a part a server");
    }
  };

  constexpr over_servers() = default;
  explicit constexpr over_servers(const options& values) : options_(values) {}

  constexpr over_servers among(int owners) const {
    over_servers its = *this;
    its.servers_ = static_cast<std::size_t>(owners);
    return its;
  }

  /// Returns the parts' ends. There are fewer parts than servers if there are fewer elements.
  std::vector<std::size_t> piece_ends(std::size_t elements) const {
    if (elements < options_.bound || elements == 0) {
      return {elements};
    }
    std::vector<std::size_t> ends(std::min(servers_, elements));
    const double part = static_cast<double>(elements) / static_cast<double>(ends.size());
    for (std::size_t i = 0; i < ends.size(); ++i) {
      ends[i] = static_cast<std::size_t>(std::round(part * static_cast<double>(i + 1)));
    }
    return ends;
  }

 private:
  options options_{};
  std::size_t servers_{1};
};
static_assert(partition_policy<over_servers>);

}  // namespace tutti::partition
