#pragma once

#include <concepts>
#include <cstdint>
#include <optional>

#include "tutti/base/cost.hpp"
#include "tutti/base/options.hpp"
#include "tutti/base/plan.hpp"

namespace tutti {

namespace role {
struct schedule {};
}  // namespace role

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
/// * `planned(options, plan, profile)`, optional: the options, where they leave something to what is
///   known of the job.
/// * `second_half(plan, options)`, optional: exchanges come in two halves, and this machine says
///   when the second one of each begins: `half_done()` once for each chunk's first half, `next()`,
///   `done()`. The same on all ranks, so its order follows from the plan.
template <class S>
concept schedule_policy = std::same_as<typename S::role, role::schedule> &&
    requires(typename S::state& state, const plan& made, const options_of<S>& options,
             std::uint32_t which) {
  { S::limits_in_flight } -> std::convertible_to<bool>;
  { S::static_order } -> std::convertible_to<bool>;
  typename S::state;
  requires std::constructible_from < typename S::state, const plan&, const options_of<S>
  & > ;
  state.ready(which);
  state.released(which);
  { state.next() } -> std::same_as<std::optional<std::uint32_t>>;
  requires !S::limits_in_flight || requires {
    { state.admits(which) } -> std::convertible_to<bool>;
    state.take(which);
  };
};

namespace facts {
template <class S>
constexpr bool plans_options = requires(const options_of<S>& set, const plan& made,
                                        const profile& known) {
  { S::planned(set, made, known) } -> std::same_as<options_of<S>>;
};
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

}  // namespace tutti
