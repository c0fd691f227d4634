#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>

#include "tutti/kernels/cast.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// A format of one element: the type `bits`, and the two functions that convert a float to it and
/// back. Bits that are all zero must mean zero. Both functions must be TUTTI_HD if the format is to
/// run on a device.
template <class F>
concept element_format = std::is_trivially_copyable_v<typename F::bits> &&
    requires(float value, typename F::bits bits) {
  { F::to_bits(value) } -> std::same_as<typename F::bits>;
  { F::to_float(bits) } -> std::same_as<float>;
};

/// Each element travels, and is summed, in a format of its own, independently of its neighbours.
/// Wire: n elements' bits. A sum is made in float and rounded to the format again.
/// Cost: the format's share of four bytes an element; one pass to encode, one to accumulate. On a
/// GPU the formats of kernels/cast.hpp are compiled in; kernels of any other format have to be
/// compiled by nvcc.
template <element_format Format>
struct elementwise {
  using role = tutti::role::compression;
  static constexpr bool summable = true;

  static constexpr std::size_t wire_bytes(std::size_t elements) { return elements * sizeof(bits); }

  template <class Queue>
  void encode(Queue& queue, std::span<const float> gradient, wire out) const {
    kernels::narrow<Format>(queue, gradient, out.header<bits>());
  }

  template <class Queue>
  void accumulate(Queue& queue, const_wire in, std::span<float> sum) const {
    kernels::add_widened<Format>(queue, in.header<bits>(), sum);
  }

  template <class Queue>
  void decode(Queue& queue, const_wire in, std::span<float> values) const {
    kernels::widen<Format>(queue, in.header<bits>(), values);
  }

  template <class Queue>
  void fold(Queue& queue, wire into, const_wire from) const {
    kernels::add_narrow<Format>(queue, into.as<bits>(), from.header<bits>());
  }

 private:
  using bits = typename Format::bits;
};

}  // namespace tutti::compression
