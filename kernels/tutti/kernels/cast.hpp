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

// A format has a type `bits` and two functions, `to_bits` from a float and `to_float` back.
// `to_bits` rounds to nearest, ties to even. A value that is too large becomes infinite, or NaN in
// a format without infinities, and NaN stays NaN. Neither function branches, so loops over them are
// vectorised.

/// Whether a format keeps its largest exponent for infinities and NaN, as IEEE 754 does, or uses it
/// for numbers and a single NaN.
enum class last_exponent { special, of_numbers };

/// A floating-point format: a sign, `Exponent` bits of exponent and `Digits` more bits, with
/// subnormals.
template <class Bits, unsigned Exponent, unsigned Digits, last_exponent Last>
struct small_float {
  using bits = Bits;

 private:
  static constexpr std::uint32_t bias = (1u << (Exponent - 1)) - 1;
  static constexpr std::uint32_t sign = 1u << (Exponent + Digits);
  static constexpr std::uint32_t rebiased = (127 - bias) << 23;
  static constexpr std::uint32_t float_infinity = 255u << 23;

  /// Returns `one` if `first`, else `other`. It uses a mask, because a compiler may make a
  /// conditional expression a branch in which it computes only one of the two.
  static TUTTI_HD constexpr std::uint32_t either(bool first, std::uint32_t one,
                                                 std::uint32_t other) {
    const std::uint32_t mask = 0u - std::uint32_t{first};
    return (one & mask) | (other & ~mask);
  }

 public:
  /// How many more digits a float has.
  static constexpr unsigned dropped = 23 - Digits;
  /// The least number that has all digits, as a float's bits.
  static constexpr std::uint32_t least_normal = (127 + 1 - bias) << 23;
  /// The least bits that do not stand for a finite number, and the bits of NaN.
  static constexpr std::uint32_t past_largest =
      Last == last_exponent::special ? ((1u << Exponent) - 1) << Digits : sign - 1;
  static constexpr std::uint32_t nan =
      Last == last_exponent::special ? past_largest | 1u << (Digits - 1) : sign - 1;
  static constexpr float largest = std::bit_cast<float>(((past_largest - 1) << dropped) + rebiased);

  static TUTTI_HD constexpr Bits to_bits(float value) {
    constexpr std::uint32_t too_large = (past_largest << dropped) + rebiased;
    constexpr std::uint32_t aligned_at = (127 - bias + 23 - Digits + 1) << 23;
    const auto its_bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = its_bits & 0x7fff'ffffu;
    // A float addition shifts a subnormal's digits into place and rounds them.
    const float shifted = std::bit_cast<float>(magnitude) + std::bit_cast<float>(aligned_at);
    const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(shifted) - aligned_at;
    const std::uint32_t odd = magnitude >> dropped & 1;
    const std::uint32_t half_a_digit = (1u << (dropped - 1)) - 1;
    const std::uint32_t normal = (magnitude - rebiased + half_a_digit + odd) >> dropped;
    const std::uint32_t special = magnitude > float_infinity ? nan : past_largest;
    const std::uint32_t finite = either(magnitude < least_normal, subnormal, normal);
    return static_cast<Bits>(either(magnitude >= too_large, special, finite) |
                             (its_bits >> (31 - Exponent - Digits) & sign));
  }

  static TUTTI_HD constexpr float to_float(Bits its_bits) {
    constexpr std::uint32_t exponent = ((1u << Exponent) - 1) << 23;
    const std::uint32_t wide = its_bits;
    const std::uint32_t digits = (wide & (sign - 1)) << dropped;
    const std::uint32_t normal = digits + rebiased;
    const std::uint32_t special =
        Last == last_exponent::special ? digits - exponent + float_infinity : 0x7fc0'0000u;
    const float subnormal =
        std::bit_cast<float>(digits + least_normal) - std::bit_cast<float>(least_normal);
    const std::uint32_t finite =
        either((digits & exponent) == 0, std::bit_cast<std::uint32_t>(subnormal), normal);
    const std::uint32_t magnitude = either(digits >= past_largest << dropped, special, finite);
    return std::bit_cast<float>(magnitude | (wide & sign) << (31 - Exponent - Digits));
  }
};

/// IEEE 754 binary16: 11 significant bits, largest finite value 65504.
using half = small_float<std::uint16_t, 5, 10, last_exponent::special>;

/// OCP's FP8 formats (Micikevicius et al., "FP8 Formats for Deep Learning", 2022). e4m3 has 4
/// significant bits, no infinity, one NaN and numbers up to 448. e5m2 has 3 significant bits and
/// numbers up to 57344.
using e4m3 = small_float<std::uint8_t, 4, 3, last_exponent::of_numbers>;
using e5m2 = small_float<std::uint8_t, 5, 2, last_exponent::special>;

/// bfloat16: the upper half of a float, 8 significant bits.
struct bfloat {
  using bits = std::uint16_t;

  static TUTTI_HD constexpr std::uint16_t to_bits(float value) {
    const auto its_bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (its_bits + 0x7fff + (its_bits >> 16 & 1)) >> 16;
    const std::uint32_t quiet = its_bits >> 16 | 0x40u;
    return static_cast<std::uint16_t>((its_bits & 0x7fff'ffffu) > 0x7f80'0000u ? quiet : rounded);
  }

  static TUTTI_HD constexpr float to_float(std::uint16_t its_bits) {
    return std::bit_cast<float>(std::uint32_t{its_bits} << 16);
  }
};

/// out[i] = input[i], rounded.
template <class Format, host_queue Queue>
void narrow(Queue& queue, std::span<const float> input, typename Format::bits* out) {
  queue.run([=] {
    widest([=] {
      for (std::size_t i = 0; i < input.size(); ++i) {
        element::narrow<Format>{}(input[i], out[i]);
      }
    });
  });
}
template <class Format>
void narrow(cuda::stream& queue, std::span<const float> input, typename Format::bits* out);

/// out[i] = input[i].
template <class Format, host_queue Queue>
void widen(Queue& queue, const typename Format::bits* input, std::span<float> out) {
  queue.run([=] {
    widest([=] {
      for (std::size_t i = 0; i < out.size(); ++i) {
        element::widen<Format>{}(input[i], out[i]);
      }
    });
  });
}
template <class Format>
void widen(cuda::stream& queue, const typename Format::bits* input, std::span<float> out);

/// sum[i] += input[i].
template <class Format, host_queue Queue>
void add_widened(Queue& queue, const typename Format::bits* input, std::span<float> sum) {
  queue.run([=] {
    widest([=] {
      for (std::size_t i = 0; i < sum.size(); ++i) {
        element::add_widened<Format>{}(sum[i], input[i]);
      }
    });
  });
}
template <class Format>
void add_widened(cuda::stream& queue, const typename Format::bits* input, std::span<float> sum);

/// into[i] += from[i], added in float and rounded once.
template <class Format, host_queue Queue>
void add_narrow(Queue& queue, std::span<typename Format::bits> into,
                const typename Format::bits* from) {
  queue.run([=] {
    widest([=] {
      for (std::size_t i = 0; i < into.size(); ++i) {
        element::add_narrow<Format>{}(into[i], from[i]);
      }
    });
  });
}
template <class Format>
void add_narrow(cuda::stream& queue, std::span<typename Format::bits> into,
                const typename Format::bits* from);

}  // namespace tutti::kernels
