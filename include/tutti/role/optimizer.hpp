#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "tutti/base/error.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/role/archetypes.hpp"
#include "tutti/role/compression.hpp"

namespace tutti {

namespace role {
struct optimizer {};
}  // namespace role

namespace facts {
/// Whether the optimizer's update of an element depends only on that element's parameter, gradient
/// and memory. Such an optimizer may be applied to pieces and shards of a tensor. LARS and LAMB,
/// which need a tensor's norm, are not elementwise.
template <class O>
constexpr bool elementwise = O::elementwise;
/// Whether the mean gradients are left where the model had its gradients, for an optimizer of the
/// user's own. The policy then updates no parameter.
template <class O>
constexpr bool leaves_means = requires {
  requires O::leaves_means;
};
/// Whether no tensor may be updated before the norm of all mean gradients of the step is known.
template <class O>
constexpr bool needs_all_gradients = requires {
  requires O::needs_all_gradients;
};
template <class O>
concept has_expect_values = requires {
  &O::expect_values;
}
|| !requires { &archetype::name_probe<O, archetype::checking_values>::expect_values; };
template <class O>
concept has_restores_residuals = requires {
  &O::restores_residuals;
}
|| !requires { &archetype::name_probe<O, archetype::restoring>::restores_residuals; };
}  // namespace facts

namespace detail {
struct looks_at_values {
  template <class Value>
  void operator()(std::string_view, Value&, std::string_view) const {}
};
template <class O>
concept begins_steps = !facts::needs_all_gradients<O> || requires(O & values, double squares) {
  { values.begin_step(squares) } -> std::same_as<float>;
};
template <class O>
concept checks_values = requires(
    const std::conditional_t<facts::has_expect_values<O>, O, archetype::checking_values>& values) {
  values.expect_values();
};
template <class O>
concept restores = requires(
    const std::conditional_t<facts::has_restores_residuals<O>, O, archetype::restoring>& values) {
  { values.restores_residuals() } -> std::same_as<bool>;
};
}  // namespace detail

/// An optimizer turns an averaged gradient into new parameters, on whichever rank owns them. If it
/// is `elementwise`, it is applied to runs of elements, otherwise to whole tensors.
///
/// * `elementwise`: see facts::elementwise.
/// * `memory_per_element()`: how many floats it keeps for each element under its current values
///   (rows of the context). An engine allocates what its first values need; later values may need
///   less.
/// * `apply(queue, parameters, gradient, context)`: updates the parameters. `context.step` is the
///   number of steps before this one.
/// * `describe`: its values, in the form of base/options.hpp. All ranks must set them alike. They
///   may be changed between steps, and a checkpoint stores them.
///
/// An optimizer that states `needs_all_gradients` also has
/// * `begin_step(squares)`: called before any tensor of a step is updated, with the sum of the
///   squares of all mean gradients. Returns the factor by which every mean gradient is multiplied.
///   If it returns 0, the step updates nothing: momenta stay as they are, and what compressors
///   remember is restored to what it was before the step. Where the compressor remembers something
///   or its payloads do not add, the sum is infinite if any worker's gradient holds an infinity or
///   NaN, whatever the means then hold. The function may change the optimizer's own values; every
///   rank changes them alike.
/// * optionally `restores_residuals()`: returns false if, under the current values, a step that
///   updates nothing leaves the compressor's memory as that step made it. `begin_step` is then
///   given 0 in place of any finite sum. The answer counts only where the compressor never turns a
///   finite number into an infinity.
///
/// Any optimizer may have `expect_values()`, which throws usage_error for values that it cannot
/// work with. An engine calls it before it adopts values.
///
/// An engine sends an optimizer to servers as bytes and keeps copies of it. An optimizer must
/// therefore be trivially copyable and hold no pointers: only numbers, and arrays of fixed length.
template <class O>
concept optimizer_policy = std::same_as<typename O::role, role::optimizer> &&
    detail::begins_steps<O> && detail::checks_values<O> && detail::restores<O> &&
    requires(O& values, const O optimizer, inline_queue& queue, std::span<float> parameters,
             std::span<const float> gradient, const chunk_context& where) {
  { O::elementwise } -> std::convertible_to<bool>;
  { optimizer.memory_per_element() } -> std::convertible_to<std::size_t>;
  optimizer.apply(queue, parameters, gradient, where);
  O::describe(values, detail::looks_at_values{});
  O::describe(optimizer, detail::looks_at_values{});
};

/// An optimizer with steps in which the ranks exchange momenta instead of gradients: those for
/// which `exchanges_momenta(step)` is true. In such a step `outgoing(queue, gradient, context)`
/// takes the rank's own gradient into the momentum, which all ranks had alike before the step and
/// which is the context's first row. architecture::momentum_exchange sends that row and writes the
/// mean over the ranks back into it, before it calls `apply`.
template <class O>
concept exchanges_momenta = requires(const O& values, inline_queue& queue,
                                     std::span<const float> gradient, const chunk_context& where,
                                     std::uint64_t step) {
  { values.exchanges_momenta(step) } -> std::same_as<bool>;
  values.outgoing(queue, gradient, where);
};

/// Whether, under these values, a copy of what `Compression` remembers is kept, so that it can be
/// restored after a step that updates nothing.
template <class Compression, optimizer_policy O>
bool restores_residuals(const O& values) {
  if constexpr (requires { values.restores_residuals(); }) {
    return values.restores_residuals() || facts::overflows<Compression>;
  } else {
    return facts::needs_all_gradients<O>;
  }
}

/// The optimizer's learning rate, or 1 if it has none.
template <optimizer_policy O>
double rate_of([[maybe_unused]] const O& values) {
  if constexpr (requires { values.learning_rate; }) {
    return static_cast<double>(values.learning_rate);
  } else {
    return 1;
  }
}
/// The same values with another learning rate, if they have one.
template <optimizer_policy O>
O at_rate(O values, [[maybe_unused]] double rate) {
  if constexpr (requires { values.learning_rate; }) {
    values.learning_rate = static_cast<decltype(values.learning_rate)>(rate);
  }
  return values;
}

/// Returns the factor by which residuals that are measured in steps of the optimizer must be
/// multiplied when the learning rate becomes `rate`. `measured` is the rate that they are measured
/// in: the last one that was usable, or 0 before the first. It becomes `rate`, unless `rate` is 0
/// or so small that the quotient is not finite; then it stays as it is, and the result is 1.
inline float change_of_rate(double& measured, double rate) {
  const auto factor = static_cast<float>(measured / rate);
  // This builtin in place of <cmath>, which takes the compiler longer to read than all of role/.
  if (rate == 0 || !__builtin_isfinite(factor)) {
    return 1;
  }
  const bool is_first = measured == 0;
  measured = rate;
  return is_first ? 1 : factor;
}

/// The factor by which the loss is multiplied (loss scaling), or 1 if there is none.
template <optimizer_policy O>
float scale_of([[maybe_unused]] const O& values) {
  if constexpr (requires { values.scale; }) {
    return values.scale;
  } else {
    return 1.0f;
  }
}
/// Throws usage_error if gradients of a loss that was multiplied by `scale` cannot be divided by it
/// again.
[[gnu::cold]] inline void expect_scale(float scale) {
  if (!(scale > 0 && __builtin_isfinite(scale) && __builtin_isfinite(1 / scale))) {
    throw usage_error(
        "the loss scale must be above 0, and it and its inverse finite. Fix: scale = 65536, or "
        "train without one");
  }
}
/// Throws usage_error unless both are from 0 to below 1. A running mean that keeps all of the past
/// never sees a gradient, and its bias correction divides 0 by 0.
[[gnu::cold]] inline void expect_betas(double beta1, double beta2) {
  if (!(beta1 >= 0 && beta1 < 1 && beta2 >= 0 && beta2 < 1)) {
    throw usage_error(
        "beta1 and beta2 must be from 0 to below 1. Fix: beta1 = 0.9 and beta2 = 0.999");
  }
}
/// The factor by which gradients grow when the optimizer's values change from `before` to `after`.
template <optimizer_policy O>
float change_of_scale(const O& before, const O& after) {
  return scale_of(after) / scale_of(before);
}

/// The share of its last direction that the optimizer keeps in each step: its `momentum` or
/// `beta1`, or 0 if it has neither.
template <optimizer_policy O>
double momentum_of([[maybe_unused]] const O& values) {
  if constexpr (requires { values.momentum; }) {
    return static_cast<double>(values.momentum);
  } else if constexpr (requires { values.beta1; }) {
    return static_cast<double>(values.beta1);
  } else {
    return 0;
  }
}

/// Throws usage_error if the compressor sends each rank's momentum and the optimizer would keep a
/// momentum of those.
template <class Compression, optimizer_policy O>
void expect_one_momentum(const O& values) {
  if (facts::keeps_momentum<Compression> && momentum_of(values) != 0) {
    throw usage_error(
        "this compressor sends each rank's momentum, and the optimizer would make a second "
        "momentum of it, which diverges. Fix: set the optimizer's momentum, or its beta1, to 0");
  }
}

/// Throws usage_error if the change of values from `was` to `wanted` would have ranks exchange
/// gradients again from `step` on. What `Compression` has left out of the momenta so far would then
/// stay unsent.
template <class Compression, optimizer_policy O>
void expect_momenta_go_on([[maybe_unused]] const O& was, [[maybe_unused]] const O& wanted,
                          [[maybe_unused]] std::uint64_t step) {
  if constexpr (exchanges_momenta<O> && facts::memory_per_element < Compression >> 0) {
    if (was.exchanges_momenta(step) && !wanted.exchanges_momenta(step)) {
      throw usage_error(sentence({"the optimizer would exchange gradients again at step ", step,
                                  ", and what compressors have left out of momenta would stay "
                                  "unsent. Fix: use a freeze_step that has passed"}));
    }
  }
}

/// Throws usage_error for values that the optimizer cannot work with.
template <optimizer_policy O>
void expect_values([[maybe_unused]] const O& values) {
  if constexpr (requires { values.expect_values(); }) {
    values.expect_values();
  }
}

}  // namespace tutti
