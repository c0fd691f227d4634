#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/kernels/arithmetic.hpp"
#include "tutti/kernels/norms.hpp"
#include "tutti/kernels/signs.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// Each element becomes its sign times a scale of the chunk that `Scale` computes.
/// Wire: the scale as a float, then one bit an element, laid out as in `sign`.
/// Cost: 1/32 of the bytes; two passes to encode, one to accumulate. Under error feedback two
/// passes do everything.
template <class Scale>
struct signs_and_scale {
  using role = tutti::role::compression;
  static constexpr bool summable = false;

  static constexpr std::size_t wire_bytes(std::size_t elements) {
    return sizeof(float) + kernels::sign_words(elements) * sizeof(std::uint32_t);
  }

  template <class Queue>
  void encode(Queue& queue, std::span<const float> gradient, wire out) const {
    Scale::of(queue, gradient, out.header<float>());
    kernels::pack_signs(queue, gradient, words(out));
  }

  template <class Queue>
  void accumulate(Queue& queue, const_wire in, std::span<float> sum) const {
    kernels::add_signs(queue, words(in), in.header<float>(), sum);
  }

  template <class Queue>
  void decode(Queue& queue, const_wire in, std::span<float> values) const {
    kernels::unpack_signs(queue, words(in), in.header<float>(), values);
  }

  /// Encodes gradient + residual; the residual becomes what the payload leaves behind.
  template <class Queue>
  void encode_with_residual(Queue& queue, std::span<const float> gradient,
                            std::span<float> residual, wire out, const chunk_context&) const {
    Scale::of_sum(queue, residual, gradient, out.header<float>());
    kernels::pack_signs_and_subtract(queue, residual, out.header<float>(), words(out));
  }

 private:
  static std::uint32_t* words(wire out) { return out.header<std::uint32_t>() + 1; }
  static const std::uint32_t* words(const_wire in) { return in.header<std::uint32_t>() + 1; }
};

namespace detail {

struct mean_magnitude {
  template <class Queue>
  static void of(Queue& queue, std::span<const float> input, float* scale) {
    kernels::mean_magnitude(queue, input, scale);
  }
  template <class Queue>
  static void of_sum(Queue& queue, std::span<float> into, std::span<const float> from,
                     float* scale) {
    kernels::add_and_mean_magnitude(queue, into, from, scale);
  }
};

struct root_mean_square {
  template <class Queue>
  static void of(Queue& queue, std::span<const float> input, float* scale) {
    kernels::root_mean_square(queue, input, scale);
  }
  template <class Queue>
  static void of_sum(Queue& queue, std::span<float> into, std::span<const float> from,
                     float* scale) {
    kernels::add_and_root_mean_square(queue, into, from, scale);
  }
};

}  // namespace detail

/// Each element becomes its sign times the chunk's mean magnitude, the scale that leaves the least
/// behind.
/// Wire and cost: those of signs_and_scale. After: Karimireddy et al., "Error Feedback Fixes
/// SignSGD", 2019.
struct scaled_sign : signs_and_scale<detail::mean_magnitude> {};
static_assert(compression_policy<scaled_sign>);

/// Each element becomes its sign times the chunk's root mean square, so that the vector that
/// arrives is as long as the one that was encoded.
/// Wire and cost: those of signs_and_scale. After: Tang et al., "1-bit Adam", ICML 2021, as
/// DeepSpeed has it.
struct norm_scaled_sign : signs_and_scale<detail::root_mean_square> {};
static_assert(compression_policy<norm_scaled_sign>);

}  // namespace tutti::compression
