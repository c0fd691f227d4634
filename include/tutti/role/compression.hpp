#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "tutti/base/beside.hpp"
#include "tutti/base/cost.hpp"
#include "tutti/base/options.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/base/wire.hpp"
#include "tutti/role/chunk_context.hpp"

/// What a compressor may state and do. One file, because a decorator such as error_feedback or
/// select has the facts and verbs of what it wraps, and so each is defined beside the others.
namespace tutti {

namespace role {
struct compression {};
}  // namespace role

/// What an encoder works on as a whole, the smaller first; a partition cuts only between units.
enum class unit {
  element,
  block,   ///< runs of `block()` elements, counted from the bucket's first
  tensor,  ///< one tensor a payload, whole: the encoder may ask for its shape, name and index
  bucket,
};

/// The facts of a compressor; what a policy does not state has the value here.
namespace facts {
/// Encoded payloads add: fold(a(x), a(y)) stands for x + y. They add element by element, in
/// payloads without a header, so that a collective may cut them anywhere between elements.
template <class C>
constexpr bool summable = C::summable;
/// A payload's length is known only once it is encoded; `capacity(n)` bounds it.
template <class C>
constexpr bool variable_length = requires(const C compression, std::size_t n) {
  compression.capacity(n);
};
/// How many payloads are summed over the ranks, one after the other, for one decoded gradient.
template <class C>
constexpr int rounds = 1;
template <class C>
requires requires { C::rounds; }
constexpr int rounds<C> = C::rounds;
template <class C>
constexpr bool in_rounds = (rounds<C>) > 1;
/// The payload is the gradient itself; nothing is encoded and collectives work in place.
template <class C>
constexpr bool identity = requires {
  requires C::identity;
};
/// Floats of memory for each element.
template <class C>
constexpr std::size_t memory_per_element = 0;
template <class C>
requires requires { C::memory_per_element; }
constexpr std::size_t memory_per_element<C> = C::memory_per_element;
template <class C>
constexpr tutti::unit unit_of = tutti::unit::element;
template <class C>
requires requires { C::unit; }
constexpr tutti::unit unit_of<C> = C::unit;
template <class C>
constexpr bool works_on_tensors = (unit_of<C>) == tutti::unit::tensor;
/// Decoding gives back what was encoded, up to the rounding of a float.
template <class C>
constexpr bool lossless = requires {
  requires C::lossless;
};
/// A number that it is given may arrive as an infinity. An engine counts what is no number of what
/// has come back.
template <class C>
constexpr bool overflows = requires {
  requires C::overflows;
};
/// What it sends stands for a momentum of the rank's own: an optimizer's would be a second one on
/// top of it.
template <class C>
constexpr bool keeps_momentum = requires {
  requires C::keeps_momentum;
};
/// What arrives of an element is 1 or -1, however large or small it was.
template <class C>
constexpr bool sends_signs_alone = requires {
  requires C::sends_signs_alone;
};
/// What arrives of an element is one of a few values that were set beforehand, as 1 and -1 are.
template <class C>
constexpr bool sends_set_values = (sends_signs_alone<C>) || requires {
  requires C::sends_set_values;
};
/// Of what it remembers of an element it may forget a share, or what is above a bound.
template <class C>
constexpr bool forgets_residuals = requires {
  requires C::forgets_residuals;
};
/// It decodes by way of the context's scratch.
template <class C>
constexpr bool decodes_in_scratch = requires {
  requires C::decodes_in_scratch;
};
/// What it remembers depends on the learning rate, and follows when that changes.
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

/// Throws usage_error where residuals of payloads of n elements would grow without bound.
template <class C>
constexpr void expect_feedback([[maybe_unused]] const C& compression,
                               [[maybe_unused]] std::size_t elements) {
  if constexpr (requires { compression.expect_feedback(elements); }) {
    compression.expect_feedback(elements);
  }
}

/// Throws usage_error where its options make what arrives of an element 1 or -1, however large it
/// was.
template <class C>
constexpr void expect_magnitudes([[maybe_unused]] const C& compression) {
  if constexpr (requires { compression.expect_magnitudes(); }) {
    compression.expect_magnitudes();
  }
}

/// Most bytes that n elements make on the wire, without looking at data.
template <class C>
constexpr std::size_t capacity(const C& compression, std::size_t elements) {
  if constexpr (facts::variable_length<C>) {
    return compression.capacity(elements);
  } else {
    return compression.wire_bytes(elements);
  }
}

/// Most bytes that n elements or any fewer make. A compressor that makes more of fewer, as one that
/// sends short chunks as they are, says so.
template <class C>
constexpr std::size_t most_bytes(const C& compression, std::size_t elements) {
  if constexpr (requires { compression.most_bytes(elements); }) {
    return compression.most_bytes(elements);
  } else {
    return capacity(compression, elements);
  }
}

/// Bytes that n elements are expected to make, where nobody encodes: in a model of a network.
template <class C>
constexpr std::size_t expected(const C& compression, std::size_t elements) {
  if constexpr (facts::variable_length<C>) {
    return compression.expected(elements);
  } else {
    return compression.wire_bytes(elements);
  }
}

/// Encodes with the place where the encoder stands, or without it if the policy has no use for it.
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

/// Encodes into room for `capacity(n)` bytes. `*length` becomes how many are used: now, or when
/// the queue runs this where only the encoder knows.
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

/// Adds the decoded payload to `sum`, with the place where the decoder stands, or without it if the
/// policy has no use for it.
template <class C, class Queue>
void accumulate(const C& compression, Queue& queue, const_wire in, std::span<float> sum,
                const chunk_context& where) {
  if constexpr (requires { compression.accumulate(queue, in, sum, where); }) {
    compression.accumulate(queue, in, sum, where);
  } else {
    compression.accumulate(queue, in, sum);
  }
}

/// A compressor that decodes a payload in place of what was there, in fewer passes than clearing
/// and accumulating take.
template <class C>
concept decodes = requires(const C compression, inline_queue& queue, const_wire in,
                           std::span<float> values) {
  compression.decode(queue, in, values);
};

/// `values` become what the payload stands for, up to the sign of a zero.
template <class C, class Queue>
void decode(const C& compression, Queue& queue, const_wire in, std::span<float> values,
            const chunk_context& where) {
  if constexpr (decodes<C>) {
    compression.decode(queue, in, values);
  } else {
    queue.clear(values.data(), values.size_bytes());
    tutti::accumulate(compression, queue, in, values, where);
  }
}

/// The compressor for a sum of payloads on its way back: the same, unless `relay()` says otherwise
/// (a momentum is the worker's, not the sum's). Its payloads are of its own length, and it decodes
/// them.
template <class C>
constexpr auto relay(const C& compression) {
  if constexpr (requires { compression.relay(); }) {
    return compression.relay();
  } else {
    return compression;
  }
}

/// A compressor whose payload is one vote an element, and that can count them.
template <class C>
concept casts_votes = requires(const C compression, inline_queue& queue, payload_row ballots,
                               wire out) {
  compression.vote(queue, ballots, out);
};

/// A compressor of which two payloads merge into one of the same length, which stands for the
/// larger part of their sum.
template <class C>
concept merges = requires(const C compression, inline_queue& queue, wire into, const_wire from,
                          std::span<float> left_out, const chunk_context& where, std::size_t n) {
  { compression.merging_bytes(n) } -> std::same_as<std::size_t>;
  compression.merge(queue, into, from, left_out, where);
  compression.select(queue, std::span<const float>(left_out), into, where);
  compression.add_absent(queue, from, from, left_out);
};

/// A compressor that sends what reaches a magnitude, which whoever calls it may have found in an
/// earlier step.
template <class C>
concept reaches_a_magnitude = facts::variable_length<C> &&
    requires(const C compression, inline_queue& queue, std::span<const float> values, wire out,
             std::size_t n, float* magnitude, std::size_t* length) {
  { compression.selected(n) } -> std::same_as<std::size_t>;
  compression.find_magnitude(queue, values, magnitude);
  compression.encode_from(queue, *magnitude, values, out, length);
};

/// A compressor that can say which elements a payload holds.
template <class C>
concept clears_sent = requires(const C compression, inline_queue& queue, const_wire payload,
                               std::span<float> values) {
  compression.clear_sent(queue, payload, values);
};

/// A compressor that adds what it has not sent to what it sends next.
template <class C>
concept remembers_residuals = requires(const C compression, const chunk_context& where,
                                       std::size_t n) {
  { compression.residual(where, n) } -> std::same_as<std::span<float>>;
};

/// What of a chunk's elements has not been sent; nothing where nobody remembers that.
template <class C>
constexpr std::span<float> residual_of(const C& compression, const chunk_context& where,
                                       std::size_t elements) {
  if constexpr (remembers_residuals<C>) {
    return compression.residual(where, elements);
  } else {
    return {};
  }
}

/// Whether the compressor with its default options makes the same bytes of every element and none
/// beside: true also where that cannot be found out before run time (core/plan_for.hpp asks then).
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

/// A compressor of one payload whose length follows from the number of elements.
template <class C>
concept encodes_a_fixed_length =
    !facts::variable_length<C> &&
    requires(const C compression, inline_queue& queue, std::span<const float> gradient, wire out,
             const chunk_context& where, std::size_t n) {
  { compression.wire_bytes(n) } -> std::same_as<std::size_t>;
  tutti::encode(compression, queue, gradient, out, where);
};

/// A compressor of one payload whose length only the encoder knows.
template <class C>
concept encodes_up_to_a_capacity =
    facts::variable_length<C> && !facts::summable<C> &&
    requires(const C compression, inline_queue& queue, std::span<const float> gradient, wire out,
             const chunk_context& where, std::size_t n, std::size_t* length) {
  { compression.capacity(n) } -> std::same_as<std::size_t>;
  { compression.expected(n) } -> std::same_as<std::size_t>;
  compression.encode(queue, gradient, out, where, length);
};

/// Payloads that may be added, in any pieces.
template <class C>
concept folds = adds_by_element<C> &&
    requires(const C compression, inline_queue& queue, wire into, const_wire in) {
  compression.fold(queue, into, in);
};

namespace archetype {
/// What a compressor has that needs memory to scribble on.
struct scratch {
  std::size_t scratch_bytes(std::size_t) const;
};
}  // namespace archetype

/// Whoever needs memory to scribble on says how much.
template <class C>
concept has_scratch = requires {
  &C::scratch_bytes;
}
|| !requires { &archetype::beside<C, archetype::scratch>::scratch_bytes; };
template <class C>
concept knows_its_scratch = requires(
    const std::conditional_t<has_scratch<C>, C, archetype::scratch>& compression, std::size_t n) {
  { compression.scratch_bytes(n) } -> std::convertible_to<std::size_t>;
};

/// A compressor of one payload.
template <class C>
concept encodes_once = knows_its_scratch<C> && std::same_as<typename C::role, role::compression> &&
    (encodes_a_fixed_length<C> ||
     encodes_up_to_a_capacity<C>)&&(!facts::summable<C> ||
                                    folds<C>)&&requires(const C compression, inline_queue& queue,
                                                        std::span<float> sum, const_wire in,
                                                        const chunk_context& where) {
  { C::summable } -> std::convertible_to<bool>;
  tutti::accumulate(compression, queue, in, sum, where);
};

/// A compressor that sends some elements, each as a float: behind all else that a payload of n
/// elements has stand the values of `selected(n)` of them.
template <class C>
concept selects_values = encodes_once<C> && encodes_a_fixed_length<C> &&
    requires(const C compression, std::size_t n) {
  { compression.selected(n) } -> std::same_as<std::size_t>;
};

/// What a sum over ranks is to become: `average` times it, the mean. (Accumulated passes are in the
/// average and not in the ranks.)
struct summed {
  int ranks{1};
  float average{1.0f};
};

/// A compressor of several payloads a tensor, each the sum over all ranks before the next is made.
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

/// A compressor that has one of two others work on each tensor.
template <class C>
concept selects = std::same_as<typename C::role, role::compression> &&
    requires(const C compression, const tensor_facts& tensor) {
  typename C::chosen;
  typename C::otherwise;
  { compression.chooses(tensor) } -> std::same_as<bool>;
};

/// Bytes that a payload of n elements is expected to make; of several rounds, those of them all on
/// the tensor that it is of.
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

/// Calls `f` with the compressor that works on tensors which a rule has chosen, or has not.
template <class C, class F>
constexpr decltype(auto) with_compressor(const C& compression, bool chosen, F&& f) {
  if constexpr (selects<C>) {
    return compression.visit(chosen, f);
  } else {
    return f(compression);
  }
}

/// The first step in which what a rule chooses is compressed as such; before it, it travels as
/// what is not chosen does.
template <class C>
constexpr std::uint64_t first_chosen_step(const C& compression) {
  if constexpr (requires { compression.start(); }) {
    return compression.start();
  } else {
    return 0;
  }
}

/// Calls `f` with the compressor that works on them in a step.
template <class C, class F>
constexpr decltype(auto) with_compressor(const C& compression, bool chosen, std::uint64_t step,
                                         F&& f) {
  return with_compressor(compression, chosen && step >= first_chosen_step(compression),
                         std::forward<F>(f));
}

/// The most that `f` answers of the compressors which work on them, in any step.
template <class C, class F>
constexpr std::size_t most_of_steps(const C& compression, bool chosen, const F& f) {
  const std::size_t later = with_compressor(compression, chosen, f);
  return chosen && first_chosen_step(compression) > 0
             ? std::max(later, with_compressor(compression, false, f))
             : later;
}

/// How the tensors of a launch must be alike: of one class, or each alone; and where it may be cut.
struct tensor_class {
  bool chosen{};            ///< by the rule of a compressor that selects
  bool alone{};             ///< the encoder works on one tensor at a time
  std::size_t block{1};     ///< the encoder works on so many elements at a time
  element_type type{};      ///< of gradients that travel apart from those of others
  std::size_t group{};      ///< of a fusion that names its groups; 0: none
  payload_bytes payload{};  ///< of tensors that travel together; refers to the compressor
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

/// Whoever works on blocks says how many elements they have.
template <class C>
concept knows_its_blocks = facts::unit_of<C>
!= unit::block || requires(const C& its) {
  { its.block() } -> std::convertible_to<std::size_t>;
};

/// A compressor says what a chunk looks like on the wire.
///
/// Of one payload:
///
/// * `summable`: the fact above. A summable compressor also supplies
///   `fold(queue, wire into, const_wire from)` on any run of whole elements.
/// * `wire_bytes(n)`: exact bytes on the wire of n elements, without looking at data.
/// * `encode(queue, gradient, wire [, context])`: writes exactly those bytes. The gradient is not
///   changed; what is left behind goes to the context's memory.
/// * `accumulate(queue, const_wire, sum [, context])`: adds the decoded payload to `sum`. One that
/// has no other form than with a context uses its scratch, and states `decodes_in_scratch`.
///
/// Where the length depends on the data, in place of `wire_bytes`: `capacity(n)`, `expected(n)` and
/// `encode(queue, gradient, wire, context, size_t* length)`. Such a payload shows by itself where
/// it ends: `accumulate` may be given more bytes, and must not believe them blindly.
///
/// Of several payloads (`rounds`), each summed over the ranks as floats; its unit is a tensor:
///
/// * `wire_bytes(tensor, round)`; `remembers(tensor)`: floats that it keeps of a tensor, 0 at
///   first, equal on all ranks; `scratch_bytes(tensor)`: what it keeps between rounds.
/// * `encode(queue, round, gradient, wire, context)`: the first round also takes the gradient in.
/// * `between(queue, round, const_wire sum, context)`: after every round but the last.
/// * `decode(queue, const_wire sum, mean, context, summed)`: the last sum becomes the mean
/// gradient.
///
/// Of two kinds, tensor by tensor: `chosen`, `otherwise`, `chooses(tensor)`; and `start()`, where
/// the first kind's turn comes later than step 0.
///
/// Optional: `decode(queue, const_wire, values)`: the payload in place of what was there;
/// `fold_everywhere(queue, array of wires)`, a fold in that order which leaves the sum in
/// all of them in one pass;
/// `merge(queue, into, from, left_out, context)`: of two payloads' sum as much as one holds goes to
/// the first, and the rest, element by element, to `left_out`, unless that is empty; the context's
/// scratch is of `merging_bytes(n)`. Beside it `select(queue, values, out, context)`: an encoding
/// of values as they are, and `add_absent(queue, payload, others, sum)`: adds what a payload has of
/// elements that another has not;
/// `find_magnitude(queue, values, *magnitude)`: of the last of the `selected(n)` elements that it
/// would send, and `encode_from(queue, magnitude, values, out, *length)`: a payload of all that
/// reach one. `clear_sent(queue, payload, values)`: of a selection, 0 where the payload has an
/// element, without looking at values; `selected(n)`, as selects_values has it; `residual(context,
/// n)`: what of n elements has not been sent, a row of the memory; `expect_feedback(n)`: throws
/// usage_error where what it sends of n elements may be further from them than nothing is, so that
/// residuals of it would grow without bound; `expect_magnitudes()`: throws usage_error where its
/// options make of every element a sign that is worth 1;
/// `rescale(queue, context, n, factor)`: what it remembers of n elements and measures in steps of
/// the optimizer becomes `factor` times as much, for the learning rate has become 1 / factor of
/// what it was;
/// `voted_on(queue, values, context)`: of a vote that is not one on the gradient, what it was on;
/// `relay()`, `vote(queue, ballots, out)`, `options`, `memory_per_element`, `scratch_bytes(n)`,
/// `unit` (with `block()`, its elements, where that is a block), `lossless`, `identity`,
/// `overflows`, `keeps_momentum`, `sends_signs_alone`, `sends_set_values`, `forgets_residuals`.
template <class C>
concept compression_policy = knows_its_blocks<C> &&
    (encodes_once<C> || encodes_in_rounds<C> || selects<C>);

}  // namespace tutti
