#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/kernels/arithmetic.hpp"
#include "tutti/kernels/signs.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// Each element becomes its sign times the chunk's mean magnitude.
/// Wire: the mean as a float, then one bit an element, laid out as `sign` does.
/// Cost: 1/32 of the bytes; two passes to encode, one to accumulate. Under error feedback two
/// passes do all. After: Karimireddy et al., "Error Feedback Fixes SignSGD", 2019.
struct scaled_sign {
  using role = tutti::role::compression;
  static constexpr bool summable = false;

  static constexpr std::size_t wire_bytes(std::size_t elements) {
    return sizeof(float) + kernels::sign_words(elements) * sizeof(std::uint32_t);
  }

  template <class Queue>
  void encode(Queue& queue, std::span<const float> gradient, wire out) const {
    kernels::mean_magnitude(queue, gradient, out.header<float>());
    kernels::pack_signs(queue, gradient, words(out));
  }

  template <class Queue>
  void accumulate(Queue& queue, const_wire in, std::span<float> sum) const {
    kernels::add_signs(queue, words(in), in.header<float>(), sum);
  }

  /// Encodes gradient + residual; the residual becomes what the payload leaves behind.
  template <class Queue>
  void encode_with_residual(Queue& queue, std::span<const float> gradient,
                            std::span<float> residual, wire out, const chunk_context&) const {
    kernels::add_and_mean_magnitude(queue, residual, gradient, out.header<float>());
    kernels::pack_signs_and_subtract(queue, residual, out.header<float>(), words(out));
  }

 private:
  static std::uint32_t* words(wire out) { return out.header<std::uint32_t>() + 1; }
  static const std::uint32_t* words(const_wire in) { return in.header<std::uint32_t>() + 1; }
};
static_assert(compression_policy<scaled_sign>);

}  // namespace tutti::compression
