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

/// What happens on a rank, in the order in which a gradient passes through these events.
enum class event : std::uint8_t {
  ready,        ///< a tensor's gradient is final on this rank
  started,      ///< a chunk's exchange begins
  released,     ///< a chunk's bytes have left
  finished,     ///< a chunk's result has arrived
  arrived,      ///< a tensor's parameters (or mean gradient) are up to date
  wait_begins,  ///< the training loop blocks; `which` is the tensor, or no_tensor for all
  wait_ends,
};

inline constexpr std::size_t events = 7;  ///< the number of kinds of events

inline constexpr std::uint32_t no_tensor = 0xffffffff;

namespace facts {

template <class M>
using sums_beside = archetype::name_probe<M, archetype::summing>;
/// Whether the monitor states `sums` or `summed`. It must then have both.
template <class M>
concept has_sums = requires {
  &M::sums;
  &M::summed;
}
|| !requires { &sums_beside<M>::sums; }
|| !requires { &sums_beside<M>::summed; };

/// Whether the monitor has `mean`, which is given the mean gradients.
template <class M>
concept sees_means = requires {
  &M::mean;
}
|| !requires { &archetype::name_probe<M, archetype::seeing_means>::mean; };
/// Whether the monitor has `replanned`, which is called before chunks have other numbers.
template <class M>
concept hears_of_plans = requires {
  &M::replanned;
}
|| !requires { &archetype::name_probe<M, archetype::hearing_of_plans>::replanned; };
/// Whether the monitor has `scaled`, which is given the loss scale.
template <class M>
concept hears_of_scales = requires {
  &M::scaled;
}
|| !requires { &archetype::name_probe<M, archetype::hearing_of_scales>::scaled; };
/// Whether the monitor reads the model's gradients or parameters, which must then lie in host
/// memory.
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
template <class M, class Hearing =
                       std::conditional_t<facts::hears_of_plans<M>, M, archetype::hearing_of_plans>>
concept hears_of_plans = requires(Hearing& monitor) {
  monitor.replanned();
};
template <class M, class Hearing = std::conditional_t<facts::hears_of_scales<M>, M,
                                                      archetype::hearing_of_scales>>
concept hears_of_scales = requires(Hearing& monitor, float scale) {
  monitor.scaled(scale);
};
}  // namespace detail

/// A monitor observes what happens on a rank and changes nothing. `record(what, which, when)` is
/// called on the rank's own threads, one call at a time. A monitor whose `observes` is false costs
/// nothing.
///
/// A monitor that reads gradients or parameters states `reads_memory`. Its user gives it the
/// tensors that it reads. At `ready` the gradient is this rank's own; at `arrived` the parameter is
/// up to date. Such a monitor may also have
/// * `mean(which, gradient)`: called as `record` is, with the mean gradient that the optimizer is
///   about to be given, before it is divided by a loss scale or clipped, and before the tensor's
///   `arrived`. A step that is skipped has none. Where each rank's own model or a server
///   applies the gradient there is no such mean. A monitor with `mean` is refused there when
///   compiling, and where workers get a sum or the mean of the step before.
///
/// A monitor that needs sums over all workers has both of these, called as `record` is:
/// * `sums()`: returns a span of doubles, this rank's contribution to the sums of the step that has
///   just ended. Its length must be the same on every worker; an empty span adds nothing for that
///   step. It is called once a step, when the step's last tensor has arrived, and the engine sets
///   the numbers to zero once it has read them.
/// * `summed(totals)`: is given these numbers added over the workers in rank order, equal on all of
///   them. It is called for every step whose span was not empty, in the order of steps, until a
///   worker has ended. The call comes some time after the step; `drain` waits for it.
///
/// Where workers take unequally many steps, there are totals of those steps that all have taken.
///
/// Any monitor may have
/// * `replanned()`: called when the plan has changed. Chunks have other numbers from then on.
/// * `scaled(scale)`: called in each step of a loss that is scaled, before its means are shown and
///   its sums are asked for, with the factor by which the step's gradients are multiplied.
template <class M>
concept monitor_policy =
    std::same_as<typename M::role, role::monitor> && detail::records<M> && detail::sums<M> &&
    detail::sees_means<M> && detail::hears_of_plans<M> && detail::hears_of_scales<M>;

}  // namespace tutti
