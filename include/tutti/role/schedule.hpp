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
|| !requires { &archetype::name_probe<S, archetype::planning<options_of<S>>>::planned; };
/// Whether exchanges are split in two halves. `S::second_half` then says when each second half
/// begins.
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
/// A schedule that limits what is in flight must also serve a caller that takes the order of
/// launches from another rank: it tells whether there is credit for a chunk, and takes that credit.
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

/// A schedule says which chunk is launched next and how much may be in flight at a time. Its
/// `state` is a machine without input or output: it is told events and returns chunks to start. It
/// must not allocate memory after construction.
///
/// * `limits_in_flight`: a ready chunk may have to wait until the bytes of others have left this
///   rank.
/// * `static_order`: the plan alone determines the order, whatever becomes ready first.
/// * `holds_back`, optional: a bucket that is full may have to wait until other buckets are full.
/// * `crosses_iterations`, optional: the order serves the next forward pass, which begins before
///   all tensors have arrived. With any other schedule a step ends with a barrier, as in the
///   systems that it is modelled on.
/// * `state(plan, options)`: the machine. `ready(bucket)`: all tensors of the bucket have their
///   gradient. `released(chunk)`: the chunk's bytes have left. `next()`: returns the chunk to start
///   now, if any, and takes its credit.
/// * `admits(chunk)` and `take(chunk)`, where it limits what is in flight, for a caller that takes
///   the order from another rank: `admits` returns whether there is credit for the chunk, and
///   `take` takes it.
/// * `planned(options, plan, profile)`, optional: returns the options with those filled in that
///   were left to the job's profile.
/// * `second_half(plan, options)`, optional: exchanges are split in two halves, and this machine
///   says when each second half begins. It is told `half_done()` once for each chunk's first half
///   and `done()` for each second half that has ended; `next()` returns the chunk whose second half
///   begins now, if any. The machine must decide alike on all ranks, so its order follows from the
///   plan.
template <class S>
concept schedule_policy = std::same_as<typename S::role, role::schedule> && requires {
  { S::limits_in_flight } -> std::convertible_to<bool>;
  { S::static_order } -> std::convertible_to<bool>;
} && detail::makes_an_order<S> && detail::gives_credit<S> && detail::planned<S> &&
    detail::begins_second_halves<S>;

}  // namespace tutti
