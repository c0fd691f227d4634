#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "tutti/base/units.hpp"
#include "tutti/role/archetypes.hpp"

namespace tutti {

namespace role {
struct monitor {};
}  // namespace role

/// What happens on a rank, in the order a gradient lives through it.
enum class event : std::uint8_t {
  ready,        ///< a tensor's gradient is final
  started,      ///< a chunk's exchange begins
  released,     ///< a chunk's bytes have left
  finished,     ///< a chunk's result is here
  arrived,      ///< a tensor's parameters (or mean gradient) are current
  wait_begins,  ///< the trainer waits; `which` is the tensor, or no_tensor for all
  wait_ends,
};

inline constexpr std::size_t events = 7;  ///< kinds of them

inline constexpr std::uint32_t no_tensor = 0xffffffff;

namespace facts {

template <class M>
using sums_beside = archetype::beside<M, archetype::summing>;
/// It states one of them, and must have both.
template <class M>
concept has_sums = requires {
  &M::sums;
  &M::summed;
}
|| !requires { &sums_beside<M>::sums; }
|| !requires { &sums_beside<M>::summed; };

}  // namespace facts

namespace detail {
template <class M>
concept records = requires(M& monitor, event what, std::uint32_t which, seconds when) {
  { M::observes } -> std::convertible_to<bool>;
  monitor.record(what, which, when);
};
template <class M, class Sums = std::conditional_t<facts::has_sums<M>, M, archetype::summing>>
concept sums = requires(Sums& monitor, std::span<const double> totals) {
  requires Sums::observes;
  { monitor.sums() } -> std::same_as<std::span<double>>;
  monitor.summed(totals);
};
}  // namespace detail

/// A monitor observes and changes nothing. `record(what, which, when)` is called on the rank's own
/// threads, one at a time; a monitor that does not observe costs nothing.
///
/// One that needs numbers of all workers states both of these, called as `record` is:
/// * `sums()`: a span of double, what this rank adds for the step that has ended, always as many.
///   Asked for once a step, when its last tensor has arrived, and set to zero once read.
/// * `summed(totals)`: the same, added over the workers in rank order, equal on all of them; once a
///   step, in the order of steps. It comes some time after the step: `drain` waits for it.
/// Every worker must take the same number of steps.
template <class M>
concept monitor_policy =
    std::same_as<typename M::role, role::monitor> && detail::records<M> && detail::sums<M>;

}  // namespace tutti
