#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/base/options.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/wire.hpp"

namespace tutti {

namespace role {
struct compression {};
}  // namespace role

/// What an encoder works on as a whole; a partition cuts only between units.
enum class unit { element, bucket };

/// Where an encoder stands: what it may remember from step to step and scribble on.
struct site {
  /// `memory_per_element` floats for each element, lane by lane: lane `i` of this chunk begins at
  /// `memory + i * stride`. It survives re-planning and travels with checkpoints.
  float* memory{};
  std::size_t stride{};
  /// `scratch_bytes(n)` bytes, undefined on entry.
  std::span<std::byte> scratch{};
  /// Steps completed before this one, and the chunk's first element in the flat index space: what
  /// counter-based random numbers are drawn from.
  std::uint64_t step{};
  std::uint64_t first_element{};

  /// The site of the same chunk's elements from `first` on.
  site from(std::size_t first) const {
    site rest = *this;
    rest.memory = memory == nullptr ? nullptr : memory + first;
    rest.first_element += first;
    return rest;
  }
  std::span<float> lane(std::size_t i, std::size_t elements) const {
    return {memory + i * stride, elements};
  }
  /// The site for a decorated compressor, whose lanes follow the first `taken` of its decorator.
  site after(std::size_t taken) const {
    site inner = *this;
    inner.memory += taken * stride;
    return inner;
  }
};

/// The facts of a compressor; what a policy does not state has the value here.
namespace facts {
/// Encoded payloads add: fold(a(x), a(y)) stands for x + y.
template <class C>
constexpr bool summable = C::summable;
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
/// Decoding gives back what was encoded, up to the rounding of a float.
template <class C>
constexpr bool lossless = requires {
  requires C::lossless;
};
}  // namespace facts

template <class C>
constexpr std::size_t scratch_bytes(const C& compression, std::size_t elements) {
  if constexpr (requires { compression.scratch_bytes(elements); }) {
    return compression.scratch_bytes(elements);
  } else {
    return 0;
  }
}

/// Encodes with the place where the encoder stands, or without it if the policy has no use for it.
template <class C, class Queue>
void encode(const C& compression, Queue& queue, std::span<const float> gradient, wire out,
            const site& where) {
  if constexpr (requires { compression.encode(queue, gradient, out, where); }) {
    compression.encode(queue, gradient, out, where);
  } else {
    compression.encode(queue, gradient, out);
  }
}

/// The compressor for a sum of payloads on its way back: the same, unless `relay()` says otherwise
/// (a momentum is the worker's, not the sum's).
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

/// A compressor says what a chunk looks like on the wire.
///
/// * `summable`: the fact above. A summable compressor also supplies
///   `fold(queue, wire into, const_wire from)` on any run of whole elements.
/// * `wire_bytes(n)`: exact bytes on the wire of n elements, without looking at data.
/// * `encode(queue, gradient, wire [, site])`: writes exactly those bytes. The gradient is not
///   changed; what is left behind goes to the site's memory.
/// * `accumulate(queue, const_wire, sum)`: adds the decoded payload to `sum`.
///
/// Optional: `fold_everywhere(queue, array of wires)`, a fold in that order which leaves the sum in
/// all of them in one pass;
/// `relay()`, `vote(queue, ballots, out)`, `options`, `memory_per_element`, `scratch_bytes(n)`,
/// `unit`, `lossless`, `identity`.
template <class C>
concept compression_policy = std::same_as<typename C::role, role::compression> &&
    requires(const C compression, inline_queue& queue, std::span<const float> gradient,
             std::span<float> sum, wire out, const_wire in, const site& where, std::size_t n) {
  { C::summable } -> std::convertible_to<bool>;
  { compression.wire_bytes(n) } -> std::same_as<std::size_t>;
  tutti::encode(compression, queue, gradient, out, where);
  compression.accumulate(queue, in, sum);
} &&(!C::summable || requires(const C compression, inline_queue& queue, wire into, const_wire in) {
  compression.fold(queue, into, in);
});

}  // namespace tutti
