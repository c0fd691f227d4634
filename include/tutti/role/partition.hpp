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
template <class P>
concept partition_policy = std::same_as<typename P::role, role::partition> &&
    requires(const P partition, std::size_t elements) {
  { partition.piece_ends(elements) } -> std::same_as<std::vector<std::size_t>>;
};

}  // namespace tutti
