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

/// Whether gradients of several element types share a bucket. They may, for all are widened to
/// floats; systems whose buffers are of a type keep them apart.
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
constexpr bool has_cycle = false;
template <class F>
requires requires(const typename F::state& its) { its.cycle(); }
constexpr bool has_cycle<F> = at_run_time<F>;
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
/// What a fusion that decides at run time has beside its groups.
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
using gathering = std::conditional_t<facts::at_run_time<F>, F, archetype::run_time_fusion>;
}  // namespace detail

/// A fusion says which tensors travel together.
///
/// * `group_ends(backward, profile)`: tensors come in backward order; the answer holds, for each
///   group, one past its last tensor, so the last entry is `backward.size()` (and there is none if
///   there are no tensors). A pure function: every rank must get the same answer.
/// * `group_of(tensor)`, optional: it groups the tensors of each answer, neighbours or not, as if
///   there were no others.
/// * `options::types`, optional: where they are apart, it groups the tensors of each type as if
///   there were no others, and `at_run_time` those are chunks of different kinds.
/// * `at_run_time`, optional: chunks that are ready together are launched together, whatever the
///   plan says. Then `state(plan, options)` is a machine that allocates nothing after construction:
///   `stage(chunk)` takes what the schedule lets go; `next()` answers the chunks of the next launch
///   by ascending number, until it answers none; `cycle()`, optional, is the time between two looks
///   at what is ready, zero where there is nothing to wait for; `unsettled_steps()`, optional, is
///   the number of steps after which launches repeat, each step's as the last one's; and
///   `most_bytes(plan)` is the gradient of the launches that buffers are made for at the start: a
///   larger one has its buffer made when it comes.
/// * `holds_groups`, optional: what has been staged may have to wait for what has not.
template <class F>
concept fusion_policy = std::same_as<typename F::role, role::fusion> && detail::makes_groups<F> &&
    detail::gathers<detail::gathering<F>> && detail::looks_in_cycles<F>;

template <class F>
concept run_time_fusion = fusion_policy<F> && facts::at_run_time<F>;

}  // namespace tutti
