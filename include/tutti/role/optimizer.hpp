#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tutti/base/error.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/role/compression.hpp"

namespace tutti {

namespace role {
struct optimizer {};
}  // namespace role

namespace facts {
/// What an optimizer makes of an element depends on that element alone: its parameter, gradient and
/// memory. It may then be applied to pieces and shards of a tensor. LARS and LAMB, which look at a
/// tensor's norm, are not.
template <class O>
constexpr bool elementwise = O::elementwise;
/// Means are left where the model had its gradients, for an optimizer of the user's: it updates no
/// parameter.
template <class O>
constexpr bool leaves_means = requires {
  requires O::leaves_means;
};
/// It updates no tensor before it knows how long the gradients of all are together.
template <class O>
constexpr bool needs_all_gradients = requires {
  requires O::needs_all_gradients;
};
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
}  // namespace detail

/// An optimizer turns an averaged gradient into new parameters, on whichever rank owns them: a run
/// of elements at a time where it is `elementwise`, whole tensors otherwise.
///
/// * `elementwise`: as facts::elementwise says.
/// * `memory_per_element()`: floats that it keeps for each element with its values as they are
///   (context rows). An engine has room for what its first values need; later ones may need less.
/// * `apply(queue, parameters, gradient, context)`: `context.step` counts the steps before it.
/// * `describe`: its values, as base/options.hpp says. All ranks must set them alike; they may be
///   changed between steps, and a checkpoint has them.
///
/// One that `needs_all_gradients` also has
/// * `begin_step(squares)`: before any tensor of a step is updated, with the sum of the squares of
///   all mean gradients, answers the factor by which they are all multiplied; 0: this step updates
///   nothing, momenta stay, and what compressors remember is what it was before the step. The sum
///   is infinite where a compressor remembers, or its payloads do not add, and some worker's
///   gradient holds an infinity or NaN, whatever came of that. It may change values of its own,
///   which every rank changes alike.
/// * optionally `goes_back()`: false where, under values as they are, what is remembered stays as a
///   step that updates nothing has left it, and 0 stands for any sum that is finite; asked where
///   the compressor makes no infinity of a number.
///
/// Any may have `expect_values()`, which throws usage_error for values that it cannot work with: an
/// engine asks before it takes them.
///
/// An engine sends one as bytes and keeps copies, so it must be trivially copyable, and point at
/// nothing: numbers, and arrays of fixed length.
template <class O>
concept optimizer_policy = std::same_as<typename O::role, role::optimizer> &&
    detail::begins_steps<O> &&
    requires(O& values, const O optimizer, inline_queue& queue, std::span<float> parameters,
             std::span<const float> gradient, const chunk_context& where) {
  { O::elementwise } -> std::convertible_to<bool>;
  { optimizer.memory_per_element() } -> std::convertible_to<std::size_t>;
  optimizer.apply(queue, parameters, gradient, where);
  O::describe(values, detail::looks_at_values{});
  O::describe(optimizer, detail::looks_at_values{});
};

/// Some of its steps take the mean of what ranks make of their own gradients and of what they
/// remember alike: `exchanges_momenta(step)`, and `outgoing(queue, gradient, context)`, which in
/// such a step takes a gradient into the momentum, the context's first row.
/// architecture::momentum_exchange sends that from there, and there the mean comes back, before
/// `apply` is given it.
template <class O>
concept exchanges_momenta = requires(const O& values, inline_queue& queue,
                                     std::span<const float> gradient, const chunk_context& where,
                                     std::uint64_t step) {
  { values.exchanges_momenta(step) } -> std::same_as<bool>;
  values.outgoing(queue, gradient, where);
};

/// Whether what `Compression` remembers is kept under these values, for going back to it.
template <class Compression, optimizer_policy O>
bool goes_back(const O& values) {
  if constexpr (requires { values.goes_back(); }) {
    return values.goes_back() || facts::overflows<Compression>;
  } else {
    return facts::needs_all_gradients<O>;
  }
}

/// The learning rate, or 1 where there is none.
template <optimizer_policy O>
double rate_of([[maybe_unused]] const O& values) {
  if constexpr (requires { values.learning_rate; }) {
    return static_cast<double>(values.learning_rate);
  } else {
    return 1;
  }
}
/// The values at another rate, if they have any.
template <optimizer_policy O>
O at_rate(O values, [[maybe_unused]] double rate) {
  if constexpr (requires { values.learning_rate; }) {
    values.learning_rate = static_cast<decltype(values.learning_rate)>(rate);
  }
  return values;
}

/// Of residuals that are steps of an optimizer: by what they are to be multiplied, now that their
/// rate has become another. `measured` is the rate in whose steps they are: the last of those that
/// have been, which 0 is none of, nor one so small that the quotient would be no number.
inline float change_of_rate(double& measured, double rate) {
  const auto factor = static_cast<float>(measured / rate);
  // Of <cmath>, which the compiler reads for longer than all of role, only this.
  if (rate == 0 || !__builtin_isfinite(factor)) {
    return 1;
  }
  const bool is_first = measured == 0;
  measured = rate;
  return is_first ? 1 : factor;
}

/// What the loss is multiplied by, or 1 where it is not.
template <optimizer_policy O>
float scale_of([[maybe_unused]] const O& values) {
  if constexpr (requires { values.scale; }) {
    return values.scale;
  } else {
    return 1.0f;
  }
}
/// Throws usage_error where gradients of a loss that is multiplied by it cannot be divided by it.
[[gnu::cold]] inline void expect_scale(float scale) {
  if (!(scale > 0 && __builtin_isfinite(scale) && __builtin_isfinite(1 / scale))) {
    throw usage_error(
        "the loss's scale is no number above 0 by which gradients could be divided again. Fix: "
        "scale = 65536, or train without one");
  }
}
/// Gradients under the values `after` are so many times those under `before`.
template <optimizer_policy O>
float change_of_scale(const O& before, const O& after) {
  return scale_of(after) / scale_of(before);
}

/// The share of its last direction that it keeps, by either of its names; 0 where it has none.
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

/// Throws usage_error where ranks send momenta, and the optimizer would make a momentum of those.
template <class Compression, optimizer_policy O>
void expect_one_momentum(const O& values) {
  if (facts::keeps_momentum<Compression> && momentum_of(values) != 0) {
    throw usage_error(
        "this compressor sends each rank's momentum, and the optimizer would keep a momentum of "
        "that, which diverges. Fix: 0 for the optimizer's momentum, or its beta1");
  }
}

/// Throws usage_error where what `Compression` has left out of momenta would wait, for from `step`
/// on gradients were exchanged again.
template <class Compression, optimizer_policy O>
void expect_momenta_go_on([[maybe_unused]] const O& was, [[maybe_unused]] const O& wanted,
                          [[maybe_unused]] std::uint64_t step) {
  if constexpr (exchanges_momenta<O> && facts::memory_per_element < Compression >> 0) {
    if (was.exchanges_momenta(step) && !wanted.exchanges_momenta(step)) {
      throw usage_error(sentence(
          {"the optimizer would exchange gradients again at step ", step,
           ", and what compressors have left out of momenta would wait. Fix: a freeze_step that "
           "has passed"}));
    }
  }
}

/// Throws usage_error for values that the optimizer says it cannot work with.
template <optimizer_policy O>
void expect_values([[maybe_unused]] const O& values) {
  if constexpr (requires { values.expect_values(); }) {
    values.expect_values();
  }
}

}  // namespace tutti
