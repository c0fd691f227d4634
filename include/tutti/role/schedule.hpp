#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "tutti/base/cost.hpp"
#include "tutti/base/options.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/role/archetypes.hpp"

namespace tutti {

namespace role {
struct schedule {};
}  // namespace role

namespace facts {
template <class S>
concept plans_options = requires {
  &S::planned;
}
|| !requires { &archetype::beside<S, archetype::planning<options_of<S>>>::planned; };
/// An exchange has two halves, and `S::second_half` says when the second begins.
template <class S>
constexpr bool splits_phases = requires {
  typename S::second_half;
};
template <class S>
constexpr bool holds_back = requires {
  requires S::holds_back;
};
template <class S>
constexpr bool crosses_iterations = requires {
  requires S::crosses_iterations;
};
}  // namespace facts

namespace detail {
template <class S, class State = typename S::state>
concept makes_an_order = requires(State& state, const plan& made,
                                  const tutti::options_of<S>& options, std::uint32_t which) {
  State(made, options);
  state.ready(which);
  state.released(which);
  { state.next() } -> std::same_as<std::optional<std::uint32_t>>;
};
/// Where it limits flights, whoever has the order from elsewhere takes credit.
template <class S>
concept gives_credit =
    requires(std::conditional_t<S::limits_in_flight, typename S::state, archetype::window>& state,
             std::uint32_t which) {
  { state.admits(which) } -> std::convertible_to<bool>;
  state.take(which);
};
template <class S>
struct second_half_of {
  using type = archetype::second_half;
};
template <class S>
requires facts::splits_phases<S>
struct second_half_of<S> {
  using type = typename S::second_half;
};
template <class S, class SecondHalf = typename second_half_of<S>::type>
concept begins_second_halves = requires(SecondHalf& second_half, const plan& made,
                                        const tutti::options_of<S>& options) {
  SecondHalf(made, options);
  second_half.half_done();
  second_half.done();
  { second_half.next() } -> std::same_as<std::optional<std::uint32_t>>;
};
template <class S>
using planning = archetype::planning<tutti::options_of<S>>;
template <class S>
concept planned = requires(std::conditional_t<facts::plans_options<S>, S, planning<S>>& schedule,
                           const tutti::options_of<S>& options, const plan& made,
                           const profile& known) {
  { schedule.planned(options, made, known) } -> std::same_as<tutti::options_of<S>>;
};
}  // namespace detail

/// A schedule says what goes next, and how much at once. Its `state` is a machine without input or
/// output: events in, chunks to start out. Nothing in it may allocate after construction.
///
/// * `limits_in_flight`: a ready chunk may have to wait for the bytes of others to leave.
/// * `static_order`: the order is known from the plan, whatever becomes ready first.
/// * `holds_back`, optional: a full bucket may have to wait until others are full.
/// * `crosses_iterations`, optional: its order serves the next forward pass, which begins before
///   all has arrived; with any other a step ends with a barrier, as its systems do.
/// * `state(plan, options)`; `ready(bucket)`: all tensors of a bucket have their gradient;
///   `released(chunk)`: its bytes have left; `next()`: the chunk to start now, if any, whose credit
///   is then taken.
/// * where it limits flights, for whoever has the order from elsewhere: `admits(chunk)`: there is
///   credit for it; `take(chunk)`: it goes.
/// * `planned(options, plan, profile)`, optional: the options, where they leave something to the
///   job's profile.
/// * `second_half(plan, options)`, optional: exchanges come in two halves, and this machine says
///   when the second one of each begins: `half_done()` once for each chunk's first half, `next()`,
///   `done()`. It is alike on all ranks, so its order follows from the plan.
template <class S>
concept schedule_policy = std::same_as<typename S::role, role::schedule> && requires {
  { S::limits_in_flight } -> std::convertible_to<bool>;
  { S::static_order } -> std::convertible_to<bool>;
} && detail::makes_an_order<S> && detail::gives_credit<S> && detail::planned<S> &&
    detail::begins_second_halves<S>;

}  // namespace tutti
