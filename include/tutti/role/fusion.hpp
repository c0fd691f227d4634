#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tutti/base/cost.hpp"
#include "tutti/base/options.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/base/units.hpp"

namespace tutti {

namespace role {
struct fusion {};
}  // namespace role

/// A fusion says which tensors travel together.
///
/// * `group_ends(backward, profile)`: tensors come in backward order; the answer holds, for each
///   group, one past its last tensor, so the last entry is `backward.size()` (and there is none if
///   there are no tensors). A pure function: every rank must get the same answer.
/// * `at_run_time`, optional: chunks that are ready together are launched together, whatever the
///   plan says. Then `state(plan, options)` is a machine that allocates nothing after construction:
///   `stage(chunk)` takes what the schedule lets go; `next()` answers the chunks of the next launch
///   by ascending number, until it answers none; `cycle()` is the time between two looks at what is
///   ready; and `most_bytes(plan)` is the largest launch's gradient.
template <class F>
concept fusion_policy = std::same_as<typename F::role, role::fusion> &&
    requires(const F fusion, std::span<const tensor_facts> backward, const profile& known) {
  { fusion.group_ends(backward, known) } -> std::same_as<std::vector<std::size_t>>;
};

namespace facts {
template <class F>
constexpr bool at_run_time = requires {
  requires F::at_run_time;
};
}  // namespace facts

/// What a fusion that decides at run time has beside its groups.
template <class F>
concept run_time_fusion = fusion_policy<F> && facts::at_run_time<F> &&
    requires(const F fusion, typename F::state& state, const plan& made, const options_of<F>& set,
             std::uint32_t chunk) {
  requires std::constructible_from < typename F::state, const plan&, const options_of<F>
  & > ;
  state.stage(chunk);
  { state.next() } -> std::same_as<std::span<const std::uint32_t>>;
  { state.cycle() } -> std::same_as<seconds>;
  { fusion.most_bytes(made) } -> std::same_as<std::size_t>;
};

}  // namespace tutti
