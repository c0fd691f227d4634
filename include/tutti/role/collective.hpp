#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

#include "tutti/base/cost.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/archetypes.hpp"

namespace tutti {

namespace role {
struct collective {};
}  // namespace role

/// A rank's number as an index of an array.
constexpr std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

/// What a collective adds up: a run of elements, and the function that combines two of them.
/// `fold(queue, into, from, bytes)` works on any run of whole elements. A fold may also have
/// `everywhere(queue, array of pointers, bytes)`, which adds the arrays and leaves the sum in all
/// of them, in one pass. A reduction whose `data` is null is a phantom: its messages have lengths
/// and nothing is computed.
template <class Fold>
struct reduction {
  std::byte* data{};
  std::size_t elements{};
  std::size_t element_bytes{};
  Fold fold{};
  /// Memory for the collective's own use: `scratch_bytes(elements, element_bytes, ranks)` bytes.
  std::span<std::byte> scratch{};
  /// The route that the collective takes if it has several. It is equal on all ranks.
  std::uint64_t route{};
  /// The run's first element in the whole that it is cut from. Which of its parts are one element
  /// longer depends on it, so that over all runs of the whole the parts differ by at most one
  /// element.
  std::size_t first_element{};

  std::span<std::byte> all() const { return {data, elements * element_bytes}; }
  /// Part `index` of the elements, cut evenly in `parts`.
  std::span<std::byte> part(std::size_t parts, std::size_t index) const {
    return run(part_begin(elements, parts, index, first_element),
               part_begin(elements, parts, index + 1, first_element))
        .all();
  }
  /// The reduction of the elements from `begin` to `end` as a whole of its own.
  reduction run(std::size_t begin, std::size_t end) const {
    reduction some = *this;
    some.data = data == nullptr ? nullptr : data + begin * element_bytes;
    some.elements = end - begin;
    some.first_element = 0;
    return some;
  }
};

/// A chunk, described by what all ranks know it by.
struct named_piece {
  std::string_view tensor{};  ///< the first tensor of the chunk's bucket to become ready
  std::size_t index{};        ///< of this piece among the bucket's pieces
  std::size_t begin{};        ///< element
  std::size_t end{};
  std::size_t turn{};  ///< number of this piece among those of its range of sizes, in forward order
};

namespace facts {
template <class C>
constexpr bool requires_addressable_peers = requires {
  requires C::requires_addressable_peers;
};
template <class C>
constexpr bool requires_native = requires {
  requires C::requires_native;
};
template <class C>
concept has_routes = requires {
  &C::route_of;
}
|| !requires { &archetype::name_probe<C, archetype::routes>::route_of; };
}  // namespace facts

namespace detail {
template <class C>
concept adds_up = requires(const C collective, std::size_t n, archetype::endpoint self,
                           reduction<archetype::fold> data) {
  { collective.scratch_bytes(n, n, 1) } -> std::same_as<std::size_t>;
  { collective.all_reduce(self, data) } -> std::same_as<task>;
};
template <class C>
concept route_of =
    requires(const std::conditional_t<facts::has_routes<C>, C, archetype::routes>& collective,
             const named_piece& piece) {
  { collective.route_of(piece) } -> std::convertible_to<std::uint64_t>;
};
}  // namespace detail

/// A collective combines what every rank holds; afterwards every rank holds the same bits. It is
/// written over any endpoint (message_endpoint). One that uses the transport's own all-reduce, or
/// reads its peers' memory, states that.
///
/// * `rank_ordered`: the sum of each element is ((x0 + x1) + x2) + …, so that it depends neither on
///   the fusion nor on the schedule nor on the transport.
/// * `ordered_start`: every rank must start the reductions in the same order.
/// * `requires_addressable_peers`, `requires_native`: capabilities that the transport must have.
/// * `scratch_bytes(elements, element_bytes, ranks)`: the scratch memory of a reduction. As the
///   number of ranks grows, it must either only grow or only shrink.
/// * `all_reduce(endpoint, reduction)` -> task.
/// * `options`, if it has any: architecture::all_reduce and architecture::sharded take them over as
///   their own. Other architectures use the defaults.
/// * `alone(ranks)`: the cost of an all-reduce that has the network to itself, as in `alone` of an
///   architecture. A collective whose cost depends on more, or does not always have such a form,
///   has `alone(ranks, per_host, elements)` instead.
/// * `route_of(piece)`, if it has several routes: the `route` of that piece's reduction. Where
///   pieces take turns by size, `range_of(elements)` returns the range of sizes that a piece takes
///   its turn in.
///
/// Messages that are in flight at the same time must all be begun before the first is awaited
/// (base/all_of.hpp), because some transports move messages in groups.
template <class C>
concept collective_policy = std::same_as<typename C::role, role::collective> && requires {
  { C::rank_ordered } -> std::convertible_to<bool>;
  { C::ordered_start } -> std::convertible_to<bool>;
} && detail::adds_up<C> && detail::route_of<C>;

/// The cost of an all-reduce of `elements` elements that has the network to itself, if there is a
/// closed form. Every host has `per_host` ranks, except that the last host has the remaining ones.
template <collective_policy C>
constexpr std::optional<exchange_cost> cost_alone(const C& collective, int ranks, int per_host,
                                                  std::size_t elements) {
  if constexpr (requires { C::alone(ranks); }) {
    return C::alone(ranks);
  } else if constexpr (requires { collective.alone(ranks, per_host, elements); }) {
    return collective.alone(ranks, per_host, elements);
  } else {
    return std::nullopt;
  }
}

/// An all-reduce whose two halves can be used separately: `reduce_scatter` leaves the sum of part
/// `rank` on each rank, and `all_gather` distributes those parts to all ranks.
template <class C>
concept splitting_collective = collective_policy<C> &&
    requires(const C collective, archetype::endpoint self, reduction<archetype::fold> data) {
  { collective.reduce_scatter(self, data) } -> std::same_as<task>;
  { collective.all_gather(self, data) } -> std::same_as<task>;
};

/// A collective that needs nothing but messages, so that it can also run among some of the ranks.
template <class C>
concept group_collective =
    collective_policy<C> && !facts::requires_addressable_peers<C> && !facts::requires_native<C>;

}  // namespace tutti
