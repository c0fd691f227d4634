#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/kernels/signs.hpp"
#include "tutti/kernels/votes.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// Each element becomes one vote, +1 or -1; zeros of either sign and NaN vote +1, as published, and
/// so does a tensor that is absent. Where gradients are multiplied, by a loss scale or because
/// passes are summed, a vote is worth the same factor, so that the mean of votes is between -1 and
/// 1 once it is divided.
/// Wire: one bit an element, 1 for -1. The n elements, padded to a multiple of 32, are seen as 32
/// rows of n / 32. A 32-bit word takes one bit of each row, the first row's in its most significant
/// bit.
/// Cost: 1/32 of the bytes; one pass to encode, with or without a residual, one to accumulate.
/// After: Bernstein et al., "signSGD with Majority Vote", 2018, bit for bit.
struct sign {
  using role = tutti::role::compression;
  static constexpr bool summable = false;
  static constexpr bool sends_signs_alone = true;

  static constexpr std::size_t wire_bytes(std::size_t elements) {
    return kernels::sign_words(elements) * sizeof(std::uint32_t);
  }

  template <class Queue>
  void encode(Queue& queue, std::span<const float> gradient, wire out) const {
    kernels::pack_signs(queue, gradient, out.header<std::uint32_t>());
  }

  template <class Queue>
  void accumulate(Queue& queue, const_wire in, std::span<float> sum,
                  const chunk_context& where = {}) const {
    kernels::add_signs(queue, in.header<std::uint32_t>(), where.scale, sum);
  }

  template <class Queue>
  void decode(Queue& queue, const_wire in, std::span<float> values,
              const chunk_context& where = {}) const {
    kernels::unpack_signs(queue, in.header<std::uint32_t>(), where.scale, values);
  }

  /// Encodes gradient + residual; the residual becomes what the votes leave behind.
  template <class Queue>
  void encode_with_residual(Queue& queue, std::span<const float> gradient,
                            std::span<float> residual, wire out, const chunk_context& where) const {
    kernels::add_and_pack_signs(queue, residual, gradient, where.scale,
                                out.header<std::uint32_t>());
  }

  /// Writes the payload of the majority's signs; a tie is +1. The result is what accumulating every
  /// ballot and encoding the sum would give, without decoding any. `out` may be one of the ballots.
  template <class Queue>
  void vote(Queue& queue, payload_row ballots, wire out) const {
    kernels::majority(queue, out.as<std::uint32_t>(), ballots);
  }
};
static_assert(compression_policy<sign>);

}  // namespace tutti::compression
