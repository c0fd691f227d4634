#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/kernels/cast.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// The gradient travels, and is summed, with a float's range and 8 significant bits.
/// Wire: n bfloat16, rounded to nearest, ties to even; a float that rounds past the largest arrives
/// as infinity. Cost: half the bytes; one pass to encode, one to accumulate. After: the bf16
/// compression hook of PyTorch DDP.
struct bf16 {
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
  using format = kernels::bfloat;
};
static_assert(compression_policy<bf16>);

}  // namespace tutti::compression
