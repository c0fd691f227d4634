#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tutti/base/cost.hpp"
#include "tutti/base/options.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/archetypes.hpp"

namespace tutti {

namespace role {
struct fusion {};
}  // namespace role

/// Whether gradients of several element types share a bucket. They can, because all are widened to
/// floats. Systems whose buffers have one element type keep them apart.
enum class fusion_types { together, apart };
/// In the order of the enumerators.
constexpr std::array<std::string_view, 2> names(fusion_types) { return {"together", "apart"}; }

namespace facts {
template <class F>
constexpr bool at_run_time = requires {
  requires F::at_run_time;
};
template <class F>
constexpr bool holds_groups = requires {
  requires F::holds_groups;
};
template <class F>
concept has_group_of = requires {
  &F::group_of;
}
|| !requires { &archetype::name_probe<F, archetype::grouping>::group_of; };
template <class F>
using its_state_beside =
    archetype::name_probe<typename F::state, archetype::run_time_fusion::state>;
template <class F>
concept has_cycle = at_run_time<F> &&(
    requires { &F::state::cycle; } || !requires { &its_state_beside<F>::cycle; });
template <class F>
concept has_unsettled_steps = at_run_time<F> &&(
    requires { &F::state::unsettled_steps; } ||
    !requires { &its_state_beside<F>::unsettled_steps; });
template <class Options>
constexpr bool keeps_types_apart(const Options& set) {
  if constexpr (requires { set.types; }) {
    return set.types == fusion_types::apart;
  } else {
    return false;
  }
}
}  // namespace facts

namespace detail {
template <class F>
concept makes_groups = requires(const F fusion, std::span<const tensor_facts> backward,
                                const profile& known) {
  { fusion.group_ends(backward, known) } -> std::same_as<std::vector<std::size_t>>;
};
/// What a fusion that decides at run time must have in addition to `group_ends`.
template <class F, class State = typename F::state>
concept gathers = requires(const F fusion, State& state, const plan& made,
                           const tutti::options_of<F>& options, std::uint32_t chunk) {
  State(made, options);
  state.stage(chunk);
  { state.next() } -> std::same_as<std::span<const std::uint32_t>>;
  { fusion.most_bytes(made) } -> std::same_as<std::size_t>;
};
template <class F>
concept looks_in_cycles = requires(
    const typename std::conditional_t<facts::has_cycle<F>, F, archetype::run_time_fusion>::state&
        state) {
  { state.cycle() } -> std::same_as<seconds>;
};
template <class F>
concept settles =
    requires(const typename std::conditional_t<facts::has_unsettled_steps<F>, F,
                                               archetype::run_time_fusion>::state& state) {
  { state.unsettled_steps() } -> std::convertible_to<std::size_t>;
};
template <class F>
concept sorts =
    requires(const std::conditional_t<facts::has_group_of<F>, F, archetype::grouping>& fusion,
             const tensor_facts& tensor) {
  { fusion.group_of(tensor) } -> std::convertible_to<std::size_t>;
};
template <class F>
using gathering = std::conditional_t<facts::at_run_time<F>, F, archetype::run_time_fusion>;
}  // namespace detail

/// A fusion says which tensors travel together.
///
/// * `group_ends(backward, profile)`: the tensors are given in backward order. For each group the
///   result holds the index one past its last tensor, so its last entry is `backward.size()`; it is
///   empty if there are no tensors. It is a pure function, because every rank must get the same
///   result.
/// * `group_of(tensor)`, optional: returns a number. Tensors with the same number are grouped as if
///   there were no others, whether they are neighbours or not.
/// * `options::types`, optional: if it is `apart`, the tensors of each element type are grouped as
///   if there were no others. For a fusion `at_run_time` their chunks are then of different kinds.
/// * `at_run_time`, optional: chunks that are ready at the same time are launched together,
///   whatever the plan's buckets are. The fusion then also has `most_bytes(plan)`: buffers are made
///   at the start for launches of that many bytes of gradient, and a larger launch has its buffer
///   made when it comes. Its `state(plan, options)` is a machine that allocates nothing after
///   construction:
///   - `stage(chunk)` is told each chunk that the schedule lets go.
///   - `next()` returns the chunks of the next launch by ascending number, or none if there is no
///     further launch.
///   - `cycle()`, optional, is the time between two looks at what is ready; 0 means that nothing
///     waits for a cycle.
///   - `unsettled_steps()`, optional, is the number of first steps after which every step has the
///     same launches as the one before.
/// * `holds_groups`, optional: chunks that have been staged may have to wait for chunks that have
///   not.
template <class F>
concept fusion_policy = std::same_as<typename F::role, role::fusion> && detail::makes_groups<F> &&
    detail::gathers<detail::gathering<F>> && detail::looks_in_cycles<F> && detail::settles<F> &&
    detail::sorts<F>;

template <class F>
concept run_time_fusion = fusion_policy<F> && facts::at_run_time<F>;

}  // namespace tutti
