#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/kernels/cast.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// The gradient travels, and is summed, in half precision.
/// Wire: n IEEE binary16, rounded to nearest, ties to even; above 65504 it arrives as infinity.
/// Cost: half the bytes; one pass to encode, one to accumulate.
/// After: Sergeev and Del Balso, "Horovod", 2018 (no loss scaling, no residual).
struct fp16 {
  using role = tutti::role::compression;
  static constexpr bool summable = true;

  static constexpr std::size_t wire_bytes(std::size_t elements) {
    return elements * sizeof(std::uint16_t);
  }

  template <class Queue>
  void encode(Queue& queue, std::span<const float> gradient, wire out) const {
    kernels::narrow<format>(queue, gradient, out.header<std::uint16_t>());
  }

  template <class Queue>
  void accumulate(Queue& queue, const_wire in, std::span<float> sum) const {
    kernels::add_widened<format>(queue, in.header<std::uint16_t>(), sum);
  }

  /// Adds in float and rounds once.
  template <class Queue>
  void fold(Queue& queue, wire into, const_wire from) const {
    kernels::add_narrow<format>(queue, into.as<std::uint16_t>(), from.header<std::uint16_t>());
  }

 private:
  using format = kernels::half;
};
static_assert(compression_policy<fp16>);

}  // namespace tutti::compression
