#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "tutti/base/cost.hpp"
#include "tutti/base/name_probe.hpp"
#include "tutti/base/options.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/base/wire.hpp"
#include "tutti/role/chunk_context.hpp"

/// What a compressor may state and do. One file, because a decorator such as error_feedback or
/// select has the facts and verbs of the compressor that it wraps, so each is defined beside the
/// others.
namespace tutti {

namespace role {
struct compression {};
}  // namespace role

/// The unit that an encoder works on as a whole, the smallest first. A partition cuts only between
/// units.
enum class unit {
  element,
  block,   ///< runs of `block()` elements, counted from the bucket's first element
  tensor,  ///< one whole tensor a payload; the encoder may ask for its shape, name and index
  bucket,
};

/// Returns the degrees of `Rows` rows of memory that are in units of gradients, followed by those
/// of other rows. See facts::memory_degrees.
template <std::size_t Rows, std::size_t Others>
constexpr std::array<unsigned, Rows + Others> after_rows_of_gradients(
    const std::array<unsigned, Others>& degrees) {
  std::array<unsigned, Rows + Others> all{};
  if constexpr (Rows != 0) {
    std::fill_n(all.begin(), Rows, 1u);
  }
  if constexpr (Others != 0) {
    std::copy(degrees.begin(), degrees.end(), all.begin() + Rows);
  }
  return all;
}

/// The facts of a compressor. A fact that a policy does not state has the default value given here.
namespace facts {
/// Whether encoded payloads add: fold(a(x), a(y)) is an encoding of x + y. They add element by
/// element, and payloads have no header, so a collective may cut them between any two elements.
template <class C>
constexpr bool summable = C::summable;
/// Whether a payload's length is known only once it is encoded; `capacity(n)` bounds it.
template <class C>
constexpr bool variable_length = requires(const C compression, std::size_t n) {
  compression.capacity(n);
};
/// The number of payloads that are summed over the ranks, one after the other, for one decoded
/// gradient.
template <class C>
constexpr int rounds = 1;
template <class C>
requires requires { C::rounds; }
constexpr int rounds<C> = C::rounds;
template <class C>
constexpr bool in_rounds = (rounds<C>) > 1;
/// Whether the payload is the gradient itself. Nothing is then encoded, and collectives work in
/// place.
template <class C>
constexpr bool identity = requires {
  requires C::identity;
};
/// How many floats of memory the compressor keeps for each element.
template <class C>
constexpr std::size_t memory_per_element = 0;
template <class C>
requires requires { C::memory_per_element; }
constexpr std::size_t memory_per_element<C> = C::memory_per_element;
/// The degree of each of these floats: if gradients become f times as large, it becomes f^degree
/// times as large. Residuals and momenta are of degree 1, the default, squares of 2, counts of 0.
template <class C>
constexpr std::array<unsigned, memory_per_element<C>> memory_degrees =
    after_rows_of_gradients<memory_per_element<C>>(std::array<unsigned, 0>());
template <class C>
requires requires { C::memory_degrees; }
constexpr std::array<unsigned, memory_per_element<C>> memory_degrees<C> = C::memory_degrees;
template <class C>
constexpr tutti::unit unit_of = tutti::unit::element;
template <class C>
requires requires { C::unit; }
constexpr tutti::unit unit_of<C> = C::unit;
template <class C>
constexpr bool works_on_tensors = (unit_of<C>) == tutti::unit::tensor;
/// Whether decoding gives back what was encoded, up to the rounding of a float.
template <class C>
constexpr bool lossless = requires {
  requires C::lossless;
};
/// Whether a finite number may arrive as an infinity. The engine then counts the infinities and NaN
/// in what comes back.
template <class C>
constexpr bool overflows = requires {
  requires C::overflows;
};
/// Whether the payload encodes a momentum of the rank's own. A momentum of the optimizer's would be
/// a second one on top of it.
template <class C>
constexpr bool keeps_momentum = requires {
  requires C::keeps_momentum;
};
/// Whether every element arrives as 1 or -1, times the context's scale, however large or small it
/// was.
template <class C>
constexpr bool sends_signs_alone = requires {
  requires C::sends_signs_alone;
};
/// Whether every element arrives as one of a few values that were set beforehand, such as 1 and -1.
template <class C>
constexpr bool sends_set_values = (sends_signs_alone<C>) || requires {
  requires C::sends_set_values;
};
/// Whether the compressor may forget part of a residual: a share of it, or what exceeds a bound.
template <class C>
constexpr bool forgets_residuals = requires {
  requires C::forgets_residuals;
};
/// Whether decoding uses the context's scratch.
template <class C>
constexpr bool decodes_in_scratch = requires {
  requires C::decodes_in_scratch;
};
/// Whether the compressor's memory is measured in steps of the optimizer, so that it has to be
/// rescaled when the learning rate changes.
template <class C>
constexpr bool rescales = requires(const C compression, inline_queue& queue,
                                   const chunk_context& where, std::size_t n) {
  compression.rescale(queue, where, n, 1.0f);
};
template <class C>
requires requires {
  typename C::chosen;
  typename C::otherwise;
}
constexpr bool rescales<C> = (rescales<typename C::chosen>) || (rescales<typename C::otherwise>);
template <class C>
requires requires {
  typename C::chosen;
  typename C::otherwise;
}
constexpr bool overflows<C> = (overflows<typename C::chosen>) || (overflows<typename C::otherwise>);
template <class C>
requires requires {
  typename C::chosen;
  typename C::otherwise;
}
constexpr bool keeps_momentum<C> =
    (keeps_momentum<typename C::chosen>) || (keeps_momentum<typename C::otherwise>);
template <class C>
requires requires {
  typename C::chosen;
  typename C::otherwise;
}
constexpr bool sends_signs_alone<C> =
    (sends_signs_alone<typename C::chosen>) || (sends_signs_alone<typename C::otherwise>);
template <class C>
requires requires {
  typename C::chosen;
  typename C::otherwise;
}
constexpr bool sends_set_values<C> =
    (sends_set_values<typename C::chosen>) || (sends_set_values<typename C::otherwise>);
template <class C>
requires requires {
  typename C::chosen;
  typename C::otherwise;
}
constexpr bool forgets_residuals<C> =
    (forgets_residuals<typename C::chosen>) || (forgets_residuals<typename C::otherwise>);
}  // namespace facts

template <class C>
constexpr std::size_t scratch_bytes(const C& compression, std::size_t elements) {
  if constexpr (requires { compression.scratch_bytes(elements); }) {
    return compression.scratch_bytes(elements);
  } else {
    return 0;
  }
}

/// Throws usage_error if residuals of payloads of n elements would grow without bound.
template <class C>
constexpr void expect_feedback([[maybe_unused]] const C& compression,
                               [[maybe_unused]] std::size_t elements) {
  if constexpr (requires { compression.expect_feedback(elements); }) {
    compression.expect_feedback(elements);
  }
}

/// Throws usage_error if the compressor's options make every element arrive as 1 or -1, however
/// large it was.
template <class C>
constexpr void expect_magnitudes([[maybe_unused]] const C& compression) {
  if constexpr (requires { compression.expect_magnitudes(); }) {
    compression.expect_magnitudes();
  }
}

/// The maximum number of bytes that n elements take on the wire, whatever their values.
template <class C>
constexpr std::size_t capacity(const C& compression, std::size_t elements) {
  if constexpr (facts::variable_length<C>) {
    return compression.capacity(elements);
  } else {
    return compression.wire_bytes(elements);
  }
}

/// The maximum number of bytes that n elements or any smaller number of elements take. A compressor
/// whose payload may be longer for fewer elements, such as one that sends short chunks
/// uncompressed, has its own `most_bytes`.
template <class C>
constexpr std::size_t most_bytes(const C& compression, std::size_t elements) {
  if constexpr (requires { compression.most_bytes(elements); }) {
    return compression.most_bytes(elements);
  } else {
    return capacity(compression, elements);
  }
}

/// The expected number of bytes of n elements, for a model of a network, in which nothing is
/// encoded.
template <class C>
constexpr std::size_t expected(const C& compression, std::size_t elements) {
  if constexpr (facts::variable_length<C>) {
    return compression.expected(elements);
  } else {
    return compression.wire_bytes(elements);
  }
}

/// Encodes with the context of the elements, or without it if the policy does not use it.
template <class C, class Queue>
requires(!facts::variable_length<C>) void encode(const C& compression, Queue& queue,
                                                 std::span<const float> gradient, wire out,
                                                 const chunk_context& where) {
  if constexpr (requires { compression.encode(queue, gradient, out, where); }) {
    compression.encode(queue, gradient, out, where);
  } else {
    compression.encode(queue, gradient, out);
  }
}

/// Encodes into room for `capacity(n)` bytes. `*length` becomes the number of bytes used: now, or,
/// if only the encoder knows it, when the queue runs the encoding.
template <class C, class Queue>
void encode(const C& compression, Queue& queue, std::span<const float> gradient, wire out,
            const chunk_context& where, std::size_t* length) {
  if constexpr (facts::variable_length<C>) {
    compression.encode(queue, gradient, out, where, length);
  } else {
    tutti::encode(compression, queue, gradient, out, where);
    *length = out.size;
  }
}

/// Adds the decoded payload to `sum`, with the context of the elements, or without it if the policy
/// does not use it.
template <class C, class Queue>
void accumulate(const C& compression, Queue& queue, const_wire in, std::span<float> sum,
                const chunk_context& where) {
  if constexpr (requires { compression.accumulate(queue, in, sum, where); }) {
    compression.accumulate(queue, in, sum, where);
  } else {
    compression.accumulate(queue, in, sum);
  }
}

/// A compressor that can overwrite values with a decoded payload, in fewer passes than clearing and
/// accumulating take.
template <class C>
concept decodes = requires(const C compression, inline_queue& queue, const_wire in,
                           std::span<float> values) {
  compression.decode(queue, in, values);
};

/// Overwrites `values` with the decoded payload, with the context of the elements, or without it if
/// the policy does not use it. Zeros may differ in sign from those that were encoded.
template <class C, class Queue>
void decode(const C& compression, Queue& queue, const_wire in, std::span<float> values,
            const chunk_context& where) {
  if constexpr (requires { compression.decode(queue, in, values, where); }) {
    compression.decode(queue, in, values, where);
  } else if constexpr (decodes<C>) {
    compression.decode(queue, in, values);
  } else {
    queue.clear(values.data(), values.size_bytes());
    tutti::accumulate(compression, queue, in, values, where);
  }
}

/// The compressor for a sum of payloads on its way back to the ranks: the same one, unless
/// `relay()` returns another (a momentum, for one, belongs to a worker and not to the sum). The
/// relay's payloads may have other lengths, and the relay decodes them.
template <class C>
constexpr auto relay(const C& compression) {
  if constexpr (requires { compression.relay(); }) {
    return compression.relay();
  } else {
    return compression;
  }
}

/// A compressor whose payload is one vote an element and that can count votes.
template <class C>
concept casts_votes = requires(const C compression, inline_queue& queue, payload_row ballots,
                               wire out) {
  compression.vote(queue, ballots, out);
};

/// A compressor that merges two payloads into one of the same length, which encodes the larger part
/// of their sum.
template <class C>
concept merges = requires(const C compression, inline_queue& queue, wire into, const_wire from,
                          std::span<float> left_out, const chunk_context& where, std::size_t n) {
  { compression.merging_bytes(n) } -> std::same_as<std::size_t>;
  compression.merge(queue, into, from, left_out, where);
  compression.select(queue, std::span<const float>(left_out), into, where);
  compression.add_absent(queue, from, from, left_out);
};

/// A compressor that sends the elements of at least a given magnitude. Its caller may have found
/// that magnitude in an earlier step.
template <class C>
concept reaches_a_magnitude = facts::variable_length<C> &&
    requires(const C compression, inline_queue& queue, std::span<const float> values, wire out,
             std::size_t n, float* magnitude, std::size_t* length) {
  { compression.selected(n) } -> std::same_as<std::size_t>;
  compression.find_magnitude(queue, values, magnitude);
  compression.encode_from(queue, *magnitude, values, out, length);
};

/// A compressor that can tell which elements a payload holds.
template <class C>
concept clears_sent = requires(const C compression, inline_queue& queue, const_wire payload,
                               std::span<float> values) {
  compression.clear_sent(queue, payload, values);
};

/// A compressor that remembers residuals: it adds what it has not sent to what it sends next.
template <class C>
concept remembers_residuals = requires(const C compression, const chunk_context& where,
                                       std::size_t n) {
  { compression.residual(where, n) } -> std::same_as<std::span<float>>;
};

/// The residuals of a chunk's elements, or an empty span if the compressor remembers none.
template <class C>
constexpr std::span<float> residual_of(const C& compression, const chunk_context& where,
                                       std::size_t elements) {
  if constexpr (remembers_residuals<C>) {
    return compression.residual(where, elements);
  } else {
    return {};
  }
}

/// Whether the compressor, with its default options, takes equally many bytes for every element and
/// no bytes besides. It is also true if that is not known before run time; core/plan_for.hpp then
/// checks it.
template <class C>
constexpr bool adds_by_element = [] {
  constexpr std::size_t sizes[] = {0, 2, 3, 33, 1000};
  if constexpr (requires { typename std::bool_constant<(C{}.wire_bytes(1) > 0)>; }) {
    for (const std::size_t n : sizes) {
      if (C{}.wire_bytes(n) != n * C{}.wire_bytes(1)) {
        return false;
      }
    }
  }
  return true;
}();

/// A compressor that encodes floats, with the context of the elements or without it.
template <class C>
concept encodes = requires(const C compression, inline_queue& queue,
                           std::span<const float> gradient, wire out, const chunk_context& where) {
  compression.encode(queue, gradient, out, where);
}
|| requires(const C compression, inline_queue& queue, std::span<const float> gradient, wire out) {
  compression.encode(queue, gradient, out);
};

/// A compressor that adds a decoded payload to floats, with the context of the elements or without
/// it.
template <class C>
concept accumulates = requires(const C compression, inline_queue& queue, const_wire in,
                               std::span<float> sum, const chunk_context& where) {
  compression.accumulate(queue, in, sum, where);
}
|| requires(const C compression, inline_queue& queue, const_wire in, std::span<float> sum) {
  compression.accumulate(queue, in, sum);
};

/// A compressor of one payload, whose length follows from the number of elements.
template <class C>
concept encodes_a_fixed_length =
    !facts::variable_length<C> && encodes<C> && requires(const C compression, std::size_t n) {
  { compression.wire_bytes(n) } -> std::same_as<std::size_t>;
};

/// A compressor of one payload, whose length only the encoder knows.
template <class C>
concept encodes_up_to_a_capacity =
    facts::variable_length<C> && !facts::summable<C> &&
    requires(const C compression, inline_queue& queue, std::span<const float> gradient, wire out,
             const chunk_context& where, std::size_t n, std::size_t* length) {
  { compression.capacity(n) } -> std::same_as<std::size_t>;
  { compression.expected(n) } -> std::same_as<std::size_t>;
  compression.encode(queue, gradient, out, where, length);
};

/// A compressor whose payloads may be added in any pieces of whole elements.
template <class C>
concept folds = adds_by_element<C> &&
    requires(const C compression, inline_queue& queue, wire into, const_wire in) {
  compression.fold(queue, into, in);
};

namespace archetype {
/// The verb of a compressor that needs scratch memory.
struct scratch {
  std::size_t scratch_bytes(std::size_t) const;
};
}  // namespace archetype

/// A compressor that states how much scratch memory it needs.
template <class C>
concept has_scratch = requires {
  &C::scratch_bytes;
}
|| !requires { &archetype::name_probe<C, archetype::scratch>::scratch_bytes; };
template <class C>
concept knows_its_scratch = requires(
    const std::conditional_t<has_scratch<C>, C, archetype::scratch>& compression, std::size_t n) {
  { compression.scratch_bytes(n) } -> std::convertible_to<std::size_t>;
};

/// A compressor of one payload.
template <class C>
concept encodes_once = knows_its_scratch<C> && std::same_as<typename C::role, role::compression> &&
    (encodes_a_fixed_length<C> ||
     encodes_up_to_a_capacity<C>)&&(!facts::summable<C> || folds<C>)&&accumulates<C>&& requires {
  { C::summable } -> std::convertible_to<bool>;
};

/// A compressor that sends some elements, each as a float. A payload of n elements ends with the
/// values of `selected(n)` of them.
template <class C>
concept selects_values = encodes_once<C> && encodes_a_fixed_length<C> &&
    requires(const C compression, std::size_t n) {
  { compression.selected(n) } -> std::same_as<std::size_t>;
};

/// How a sum over `ranks` ranks becomes the mean: multiplied by `average`. Accumulated passes count
/// in `average`, and not in `ranks`.
struct summed {
  int ranks{1};
  float average{1.0f};
};

/// A compressor of several payloads a tensor, each of which is summed over all ranks before the
/// next one is made.
template <class C>
concept encodes_in_rounds = std::same_as<typename C::role, role::compression> &&
    facts::in_rounds<C> && facts::summable<C> && facts::works_on_tensors<C> &&
    requires(const C compression, inline_queue& queue, const tensor_facts& tensor, int round,
             std::span<const float> gradient, std::span<float> mean, wire out, const_wire in,
             const chunk_context& where) {
  { compression.wire_bytes(tensor, round) } -> std::same_as<std::size_t>;
  { compression.remembers(tensor) } -> std::same_as<std::size_t>;
  { compression.scratch_bytes(tensor) } -> std::same_as<std::size_t>;
  compression.encode(queue, round, gradient, out, where);
  compression.between(queue, round, in, where);
  compression.decode(queue, in, mean, where, summed{});
  compression.fold(queue, out, in);
};

/// A compressor that has one of two other compressors work on each tensor.
template <class C>
concept selects = std::same_as<typename C::role, role::compression> &&
    requires(const C compression, const tensor_facts& tensor) {
  typename C::chosen;
  typename C::otherwise;
  { compression.chooses(tensor) } -> std::same_as<bool>;
};

/// The expected number of bytes of a payload of n elements; for a compressor of several rounds, the
/// bytes of all rounds on that tensor.
template <class C>
constexpr std::size_t expected(const C& compression, std::size_t elements,
                               const tensor_facts& tensor) {
  if constexpr (facts::in_rounds<C>) {
    std::size_t sum = 0;
    for (int round = 0; round < facts::rounds<C>; ++round) {
      sum += compression.wire_bytes(tensor, round);
    }
    return sum;
  } else {
    return tutti::expected(compression, elements);
  }
}

/// Calls `f` with the compressor for tensors that a rule has chosen, or for those that it has not.
template <class C, class F>
constexpr decltype(auto) with_compressor(const C& compression, bool chosen, F&& f) {
  if constexpr (selects<C>) {
    return compression.visit(chosen, f);
  } else {
    return f(compression);
  }
}

/// The first step in which the tensors that a rule chooses are compressed by their own compressor.
/// Before it, they are sent like the others.
template <class C>
constexpr std::uint64_t first_chosen_step(const C& compression) {
  if constexpr (requires { compression.start(); }) {
    return compression.start();
  } else {
    return 0;
  }
}

/// Calls `f` with the compressor that such tensors have in step `step`.
template <class C, class F>
constexpr decltype(auto) with_compressor(const C& compression, bool chosen, std::uint64_t step,
                                         F&& f) {
  return with_compressor(compression, chosen && step >= first_chosen_step(compression),
                         std::forward<F>(f));
}

/// The largest value that `f` returns for the compressors that such tensors have in any step.
template <class C, class F>
constexpr std::size_t most_of_steps(const C& compression, bool chosen, const F& f) {
  const std::size_t later = with_compressor(compression, chosen, f);
  return chosen && first_chosen_step(compression) > 0
             ? std::max(later, with_compressor(compression, false, f))
             : later;
}

/// The properties in which the tensors of a launch must agree, whether a tensor must travel alone,
/// and where a launch may be cut.
struct tensor_class {
  bool chosen{};            ///< a selecting compressor's rule chose the tensor
  bool alone{};             ///< the encoder works on one tensor at a time
  std::size_t block{1};     ///< the number of elements that the encoder works on at a time
  element_type type{};      ///< of gradients, if element types travel apart
  std::size_t group{};      ///< the fusion's `group_of`; 0 without one
  payload_bytes payload{};  ///< length of a payload; refers to the compressor
};

template <class C>
constexpr tensor_class class_of(const C& compression, const tensor_facts& tensor) {
  bool chosen = false;
  if constexpr (selects<C>) {
    chosen = compression.chooses(tensor);
  }
  return with_compressor(compression, chosen, [chosen](const auto& its) {
    using compressor = std::remove_cvref_t<decltype(its)>;
    tensor_class made{chosen, facts::works_on_tensors<compressor>};
    if constexpr (facts::unit_of<compressor> == unit::block) {
      made.block = its.block();
    }
    if constexpr (!facts::identity<compressor> && !facts::in_rounds<compressor>) {
      made.payload = {&its, [](const void* same, std::size_t elements) {
                        return expected(*static_cast<const compressor*>(same), elements);
                      }};
    }
    return made;
  });
}

/// A compressor that works on blocks and states how many elements a block has, or one of another
/// unit.
template <class C>
concept knows_its_blocks = facts::unit_of<C>
!= unit::block || requires(const C& its) {
  { its.block() } -> std::convertible_to<std::size_t>;
};

/// A compressor says what a chunk looks like on the wire.
///
/// With one payload:
///
/// * `summable`: the fact above. A summable compressor also has `fold(queue, wire into, const_wire
///   from)`, which works on any run of whole elements.
/// * `wire_bytes(n)`: the exact number of bytes of n elements, whatever their values.
/// * `encode(queue, gradient, wire [, context])`: writes exactly those bytes. It does not change
///   the gradient; what it leaves behind goes to the context's memory. The queue may be an
///   `inline_queue`, as for every verb; for models on a device it is the device's.
/// * `accumulate(queue, const_wire, sum [, context])`: adds the decoded payload to `sum`. Of the
///   context it may use the scale and, if it states `decodes_in_scratch`, the scratch.
///
/// If the length depends on the data, it has, in place of `wire_bytes`, `capacity(n)`,
/// `expected(n)` and `encode(queue, gradient, wire, context, size_t* length)`. Such a payload must
/// itself tell where it ends: `accumulate` may be given more bytes, and must check them before it
/// trusts them.
///
/// With several payloads (`rounds`), each summed over the ranks as floats; its unit is a tensor:
///
/// * `wire_bytes(tensor, round)`; `remembers(tensor)`: floats that it keeps for a tensor, 0 at
///   first and equal on all ranks; `scratch_bytes(tensor)`: scratch that it keeps between rounds.
/// * `encode(queue, round, gradient, wire, context)`: the first round also takes the gradient in.
/// * `between(queue, round, const_wire sum, context)`: takes the sum of every round but the last.
/// * `decode(queue, const_wire sum, mean, context, summed)`: makes the mean gradient of the last
///   sum.
///
/// With two kinds of tensors: `chosen` and `otherwise`, the compressors; `chooses(tensor)`; and
/// `start()`, if chosen tensors use the first compressor only from a later step than 0 on.
///
/// Optional:
///
/// * `decode(queue, const_wire, values)`: overwrites the values with the decoded payload. It may
///   take a context besides, as `accumulate` may.
/// * `fold_everywhere(queue, array of wires)`: folds the payloads in the array's order and leaves
///   the sum in all of them, in one pass.
/// * `merge(queue, into, from, left_out, context)`: `into` becomes as much of the two payloads' sum
///   as one payload holds. The rest is added to `left_out`, element by element, unless that is
///   empty. The context's scratch has `merging_bytes(n)` bytes. A compressor with `merge` also has
///   `select(queue, values, out, context)`, which encodes values as they are, and
///   `add_absent(queue, payload, others, sum)`, which adds to `sum` the elements of a payload that
///   another payload lacks.
/// * `find_magnitude(queue, values, *magnitude)`: the magnitude of the smallest of the
///   `selected(n)` elements that it would send. `encode_from(queue, magnitude, values, out,
///   *length)` encodes all elements of at least that magnitude.
/// * `clear_sent(queue, payload, values)`, of a selection: sets values to 0 where the payload has
///   an element, without reading them. `selected(n)` is as in selects_values.
/// * `residual(context, n)`: what of n elements has not been sent, a row of the memory. Compressors
///   that send it later must have this: error_feedback refuses them, and those with a momentum.
/// * `expect_feedback(n)`: throws usage_error if what it sends of n elements may be further from
///   them than zeros are, so that their residuals would grow without bound.
/// * `expect_magnitudes()`: throws usage_error if its options make every element a sign that is
///   worth 1.
/// * `rescale(queue, context, n, factor)`: multiplies by `factor` what it remembers of n elements
///   and measures in steps of the optimizer, because the learning rate has become 1 / factor of
///   what it was.
/// * `voted_on(queue, values, context)`: of a vote on something else than the gradient, the values
///   that the vote was on.
/// * `relay()`, `vote(queue, ballots, out)`, `options`, `memory_per_element`, `memory_degrees`,
///   `scratch_bytes(n)`, `unit` (and `block()`, a block's number of elements, if that is the unit),
///   `lossless`, `identity`, `overflows`, `keeps_momentum`, `sends_signs_alone`,
///   `sends_set_values`, `forgets_residuals`.
template <class C>
concept compression_policy = knows_its_blocks<C> &&
    (encodes_once<C> || encodes_in_rounds<C> || selects<C>);

}  // namespace tutti
