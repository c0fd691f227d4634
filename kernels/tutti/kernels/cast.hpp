#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/base/host_device.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/kernels/elements.hpp"
#include "tutti/kernels/widest.hpp"

namespace tutti::kernels {

// A sixteen-bit format is two functions, float to bits and back. `to_bits` rounds to nearest, ties
// to even; what is too large becomes infinite and NaN stays NaN. Neither branches, so loops over
// them become vector code.

/// IEEE 754 binary16: 11 significant bits, largest finite value 65504.
struct half {
  static TUTTI_HD constexpr std::uint16_t to_bits(float value) {
    constexpr std::uint32_t infinity = 255u << 23;
    constexpr std::uint32_t too_large = (127u + 16) << 23;
    constexpr std::uint32_t least_normal = (127u - 14) << 23;
    constexpr std::uint32_t aligned_at = (127u - 15 + 23 - 10 + 1) << 23;
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = bits & 0x7fff'ffffu;
    // A float addition shifts a subnormal's digits into place and rounds them.
    const float shifted = std::bit_cast<float>(magnitude) + std::bit_cast<float>(aligned_at);
    const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(shifted) - aligned_at;
    const std::uint32_t odd = magnitude >> 13 & 1;
    const std::uint32_t normal = (magnitude - ((127u - 15) << 23) + 0xfff + odd) >> 13;
    const std::uint32_t special = magnitude > infinity ? 0x7e00u : 0x7c00u;
    const std::uint32_t finite = magnitude < least_normal ? subnormal : normal;
    return static_cast<std::uint16_t>((magnitude >= too_large ? special : finite) |
                                      (bits >> 16 & 0x8000u));
  }

  static TUTTI_HD constexpr float to_float(std::uint16_t its_bits) {
    constexpr std::uint32_t exponent = 0x7c00u << 13;
    constexpr std::uint32_t least_normal = (127u - 14) << 23;
    const std::uint32_t bits = its_bits;
    const std::uint32_t digits = (bits & 0x7fffu) << 13;
    const std::uint32_t normal = digits + ((127u - 15) << 23);
    const std::uint32_t special = normal + ((128u - 16) << 23);
    const float subnormal =
        std::bit_cast<float>(digits + least_normal) - std::bit_cast<float>(least_normal);
    const std::uint32_t small =
        (digits & exponent) == 0 ? std::bit_cast<std::uint32_t>(subnormal) : normal;
    const std::uint32_t magnitude = (digits & exponent) == exponent ? special : small;
    return std::bit_cast<float>(magnitude | (bits & 0x8000u) << 16);
  }
};

/// bfloat16: the upper half of a float, 8 significant bits.
struct bfloat {
  static TUTTI_HD constexpr std::uint16_t to_bits(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    const std::uint32_t quiet = bits >> 16 | 0x40u;
    return static_cast<std::uint16_t>((bits & 0x7fff'ffffu) > 0x7f80'0000u ? quiet : rounded);
  }

  static TUTTI_HD constexpr float to_float(std::uint16_t its_bits) {
    return std::bit_cast<float>(std::uint32_t{its_bits} << 16);
  }
};

/// out[i] = input[i], rounded.
template <class Format, host_queue Queue>
void narrow(Queue& queue, std::span<const float> input, std::uint16_t* out) {
  queue.run([=] {
    widest([=] {
      for (std::size_t i = 0; i < input.size(); ++i) {
        element::narrow<Format>{}(input[i], out[i]);
      }
    });
  });
}
template <class Format>
void narrow(cuda::stream& queue, std::span<const float> input, std::uint16_t* out);

/// out[i] = input[i].
template <class Format, host_queue Queue>
void widen(Queue& queue, const std::uint16_t* input, std::span<float> out) {
  queue.run([=] {
    widest([=] {
      for (std::size_t i = 0; i < out.size(); ++i) {
        element::widen<Format>{}(input[i], out[i]);
      }
    });
  });
}
template <class Format>
void widen(cuda::stream& queue, const std::uint16_t* input, std::span<float> out);

/// sum[i] += input[i].
template <class Format, host_queue Queue>
void add_widened(Queue& queue, const std::uint16_t* input, std::span<float> sum) {
  queue.run([=] {
    widest([=] {
      for (std::size_t i = 0; i < sum.size(); ++i) {
        element::add_widened<Format>{}(input[i], sum[i]);
      }
    });
  });
}
template <class Format>
void add_widened(cuda::stream& queue, const std::uint16_t* input, std::span<float> sum);

/// into[i] += from[i], added in float and rounded once.
template <class Format, host_queue Queue>
void add_narrow(Queue& queue, std::span<std::uint16_t> into, const std::uint16_t* from) {
  queue.run([=] {
    widest([=] {
      for (std::size_t i = 0; i < into.size(); ++i) {
        element::add_narrow<Format>{}(into[i], from[i]);
      }
    });
  });
}
template <class Format>
void add_narrow(cuda::stream& queue, std::span<std::uint16_t> into, const std::uint16_t* from);

}  // namespace tutti::kernels
