#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "tutti/base/options.hpp"
#include "tutti/role/archetypes.hpp"

namespace tutti {

namespace role {
struct partition {};
}  // namespace role

namespace facts {
template <class P>
concept looks_at_owners = requires {
  &P::among;
}
|| !requires { &archetype::name_probe<P, archetype::owners<P>>::among; };
}  // namespace facts

namespace detail {
template <class P>
concept piece_ends = requires(const P partition, std::size_t elements) {
  { partition.piece_ends(elements) } -> std::same_as<std::vector<std::size_t>>;
};
template <class P>
concept among = requires(
    const std::conditional_t<facts::looks_at_owners<P>, P, archetype::owners<P>>& partition) {
  { partition.among(1) } -> std::same_as<P>;
};
}  // namespace detail

/// A partition says how a bucket is cut into chunks.
///
/// * `piece_ends(elements)`: returns the index one past the last element of each piece, ascending;
///   the last one is `elements`. A bucket without elements is one empty piece.
/// * `among(owners)`, optional: returns the same policy for a job in which that many ranks own
///   chunks: the architecture's servers, or 1.
template <class P>
concept partition_policy =
    std::same_as<typename P::role, role::partition> && detail::piece_ends<P> && detail::among<P>;

/// The partition policy for a job in which `owners` ranks own chunks.
template <partition_policy P>
constexpr P among(const P& partition, int owners) {
  if constexpr (facts::looks_at_owners<P>) {
    return partition.among(owners);
  } else {
    return partition;
  }
}

}  // namespace tutti
