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

/// A rank's number as an index.
constexpr std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

/// What a collective adds up: a run of elements and the way two of them combine. `fold(queue, into,
/// from, bytes)` works on any run of whole elements. A fold may also offer
/// `everywhere(queue, array of pointers, bytes)`, which leaves their sum in all in one pass. A null
/// `data` is a phantom.
template <class Fold>
struct reduction {
  std::byte* data{};
  std::size_t elements{};
  std::size_t element_bytes{};
  Fold fold{};
  /// `scratch_bytes(elements, element_bytes, ranks)` bytes of the collective's own.
  std::span<std::byte> scratch{};
  /// Which route it takes where a collective has several; equal on all ranks.
  std::uint64_t route{};
  /// Its place in a whole, where it is one run of several: parts of all together come out even.
  std::size_t first_element{};

  std::span<std::byte> all() const { return {data, elements * element_bytes}; }
  /// Part `index` when the elements are cut evenly in `parts`.
  std::span<std::byte> part(std::size_t parts, std::size_t index) const {
    return run(part_begin(elements, parts, index, first_element),
               part_begin(elements, parts, index + 1, first_element))
        .all();
  }
  /// The reduction of those elements alone, a whole by themselves.
  reduction run(std::size_t begin, std::size_t end) const {
    reduction some = *this;
    some.data = data == nullptr ? nullptr : data + begin * element_bytes;
    some.elements = end - begin;
    some.first_element = 0;
    return some;
  }
};

/// A piece of what a plan cuts, by what all ranks know it by.
struct named_piece {
  std::string_view tensor{};  ///< of those that travel together, the one that is ready first
  std::size_t index{};        ///< among their pieces
  std::size_t begin{};        ///< element
  std::size_t end{};
  std::size_t turn{};  ///< among the pieces of its range of sizes, in forward order
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
|| !requires { &archetype::beside<C, archetype::routes>::route_of; };
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
/// written over any endpoint (message_endpoint): one that takes the transport's own all-reduce or
/// its peers' memory says so.
///
/// * `rank_ordered`: element by element the sum is ((x0 + x1) + x2) + …, so that it depends on
///   neither fusion, schedule nor transport.
/// * `ordered_start`: every rank must start them in the same order.
/// * `requires_addressable_peers`, `requires_native`: capabilities of the transport.
/// * `scratch_bytes(elements, element_bytes, ranks)`, which with more ranks only grows or only
///   shrinks; `all_reduce(endpoint, reduction)` -> task.
/// * `options`, if it has any: those of `all_reduce`. Other architectures take its defaults.
/// * `alone(ranks)`, or `alone(ranks, per_host, elements)` where that counts or there is not always
///   one: an all-reduce that has the network to itself, as `architecture::alone`.
/// * `route_of(piece)`, where it has several routes: the `route` of that piece's reduction; and
///   `range_of(elements)`, where ranges of sizes take turns each on their own.
///
/// Messages that are in flight together begin together, before the first is awaited
/// (base/all_of.hpp): some transports move them in a group.
template <class C>
concept collective_policy = std::same_as<typename C::role, role::collective> && requires {
  { C::rank_ordered } -> std::convertible_to<bool>;
  { C::ordered_start } -> std::convertible_to<bool>;
} && detail::adds_up<C> && detail::route_of<C>;

/// What an all-reduce of so many elements that has the network to itself takes, where there is a
/// closed form. Hosts have `per_host` ranks, but the last what is left.
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

/// An all-reduce whose halves are of use alone: `reduce_scatter` leaves the sum of part `rank` on
/// each rank, `all_gather` spreads those parts.
template <class C>
concept splitting_collective = collective_policy<C> &&
    requires(const C collective, archetype::endpoint self, reduction<archetype::fold> data) {
  { collective.reduce_scatter(self, data) } -> std::same_as<task>;
  { collective.all_gather(self, data) } -> std::same_as<task>;
};

/// Messages are all it takes, so it runs among some of the ranks as well.
template <class C>
concept group_collective =
    collective_policy<C> && !facts::requires_addressable_peers<C> && !facts::requires_native<C>;

}  // namespace tutti
