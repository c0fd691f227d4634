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

/// It looks at mean gradients.
template <class M>
concept sees_means = requires {
  &M::mean;
}
|| !requires { &archetype::beside<M, archetype::seeing_means>::mean; };
/// It looks at gradients or parameters of the model's, which must then be the host's to read.
template <class M>
constexpr bool reads_memory = requires {
  requires M::reads_memory;
};

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
template <class M,
          class Seeing = std::conditional_t<facts::sees_means<M>, M, archetype::seeing_means>>
concept sees_means = requires(Seeing& monitor, std::uint32_t which,
                              std::span<const float> gradient) {
  requires Seeing::observes;
  requires facts::reads_memory<Seeing>;
  monitor.mean(which, gradient);
};
}  // namespace detail

/// A monitor observes and changes nothing. `record(what, which, when)` is called on the rank's own
/// threads, one at a time; a monitor that does not observe costs nothing.
///
/// One that looks at gradients or parameters, which it has been given a tensor for each of, says
/// `reads_memory`; at `ready` the gradient is this rank's own, at `arrived` the parameter is
/// current. It may also state
/// * `mean(which, gradient)`: the mean gradient that the optimizer is about to be given, called as
///   `record` is, before the tensor's `arrived`. Where each rank's model or a server takes the
///   gradient, there is none: a rule.
///
/// One that needs numbers of all workers states both of these, called as `record` is:
/// * `sums()`: a span of double, what this rank adds for the step that has ended: as many numbers
///   on every worker, and none where nothing is added for that step. Asked for once a step, when
///   its last tensor has arrived, and set to zero once read.
/// * `summed(totals)`: these, added over the workers in rank order, equal on all of them; for every
///   step that had any, in the order of steps. It comes some time after: `drain` waits for it.
/// Every worker must take the same number of steps.
template <class M>
concept monitor_policy = std::same_as<typename M::role, role::monitor> && detail::records<M> &&
    detail::sums<M> && detail::sees_means<M>;

}  // namespace tutti
