#pragma once

#include <cstddef>
#include <vector>

#include "tutti/role/partition.hpp"

namespace tutti::partition {

/// A bucket travels whole.
/// Plan: one piece.
/// Cost: nothing.
/// After: what every system does without partitions.
struct none {
  using role = tutti::role::partition;

  std::vector<std::size_t> piece_ends(std::size_t elements) const { return {elements}; }
};
static_assert(partition_policy<none>);

}  // namespace tutti::partition
