#pragma once

#include <concepts>
#include <cstddef>
#include <vector>

#include "tutti/base/options.hpp"

namespace tutti {

namespace role {
struct partition {};
}  // namespace role

/// A partition says how a bucket is cut.
///
/// `piece_ends(elements)`: one past the last element of each piece, ascending, the last one
/// `elements`; a bucket without elements is one empty piece.
///
/// `among(owners)`, optional: the same policy where so many ranks own chunks: an architecture's
/// servers, or 1.
template <class P>
concept partition_policy = std::same_as<typename P::role, role::partition> &&
    requires(const P partition, std::size_t elements) {
  { partition.piece_ends(elements) } -> std::same_as<std::vector<std::size_t>>;
};

/// A partition where so many ranks own chunks.
template <partition_policy P>
constexpr P among(const P& partition, int owners) {
  if constexpr (requires { partition.among(owners); }) {
    return partition.among(owners);
  } else {
    return partition;
  }
}

}  // namespace tutti
