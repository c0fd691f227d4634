// Compares fp16 and bf16 with tables, in double, of every value that the formats have.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <vector>

#include "compression/placed.hpp"
#include "tutti/compression/bf16.hpp"
#include "tutti/compression/fp16.hpp"

namespace tutti {
namespace {

/// A binary format by its definition: one sign bit, then the exponent, then the digits.
struct format {
  int exponent_bits;
  int digit_bits;

  double value(std::uint32_t bits) const {
    const std::uint32_t digits = bits & ((1u << digit_bits) - 1);
    const std::uint32_t exponent = bits >> digit_bits & ((1u << exponent_bits) - 1);
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const double sign = bits >> (digit_bits + exponent_bits) & 1 ? -1 : 1;
    if (exponent == (1u << exponent_bits) - 1) {
      return digits != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
    }
    return exponent == 0 ? sign * std::ldexp(digits, 1 - bias - digit_bits)
                         : sign * std::ldexp((1u << digit_bits) + digits,
                                             static_cast<int>(exponent) - bias - digit_bits);
  }

  /// Returns the nearest value, with ties to the even digit. Infinity takes the place of the next
  /// power of two.
  std::uint32_t nearest(double wanted) const {
    const std::uint32_t infinity = ((1u << exponent_bits) - 1) << digit_bits;
    const double magnitude = std::fabs(wanted);
    const auto as_if_finite = [&](std::uint32_t bits) {
      return bits == infinity ? 2 * value(infinity - (1u << digit_bits)) : value(bits);
    };
    std::uint32_t low = 0;
    std::uint32_t high = infinity;
    while (high - low > 1) {
      const std::uint32_t middle = (low + high) / 2;
      (as_if_finite(middle) <= magnitude ? low : high) = middle;
    }
    const double below = magnitude - as_if_finite(low);
    const double above = as_if_finite(high) - magnitude;
    const std::uint32_t chosen = below < above || (below == above && low % 2 == 0) ? low : high;
    return chosen | (std::signbit(wanted) ? 1u << (digit_bits + exponent_bits) : 0);
  }
};

constexpr format binary16{5, 10};
constexpr format bfloat16{8, 7};

template <class C>
std::uint16_t encoded(float value) {
  placed<C> codec(1);
  const auto payload = codec.encode(std::span(&value, 1));
  std::uint16_t bits{};
  std::memcpy(&bits, payload.data(), sizeof bits);
  return bits;
}

template <class C>
std::vector<float> every_value_decoded() {
  std::vector<std::byte> payload(2 * 65536);
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto narrow = static_cast<std::uint16_t>(bits);
    std::memcpy(payload.data() + 2 * bits, &narrow, sizeof narrow);
  }
  return placed<C>(65536).decode(payload);
}

template <class C>
void expect_decodes_every_value(format its_format) {
  const auto decoded = every_value_decoded<C>();
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const double value = its_format.value(bits);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(decoded[bits])) << bits;
    } else {
      ASSERT_EQ(double{decoded[bits]}, value) << bits;
    }
  }
}

template <class C>
void expect_rounds_to_nearest_even(format its_format) {
  std::vector<float> inputs = {0.0f, -0.0f, std::numeric_limits<float>::denorm_min(),
                               std::numeric_limits<float>::max()};
  for (std::uint32_t bits = 0; bits < 0x7fff; bits += 3) {  // values, midpoints, their neighbours
    const auto here = static_cast<float>(its_format.value(bits));
    const auto next = static_cast<float>(its_format.value(bits + 1));
    const auto middle = static_cast<float>((double{here} + double{next}) / 2);
    if (std::isfinite(middle)) {
      inputs.insert(inputs.end(), {here, -middle, middle, std::nextafter(middle, 0.0f),
                                   std::nextafter(middle, next)});
    }
  }
  std::mt19937 random(1);
  while (inputs.size() < 200'000) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (!std::isnan(value)) {
      inputs.push_back(value);
    }
  }
  placed<C> codec(inputs.size());
  const auto payload = codec.encode(inputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::uint16_t bits{};
    std::memcpy(&bits, payload.data() + 2 * i, sizeof bits);
    ASSERT_EQ(bits, its_format.nearest(inputs[i])) << std::hexfloat << inputs[i];
  }
}

TEST(fp16, decodes_every_value) { expect_decodes_every_value<compression::fp16>(binary16); }
TEST(bf16, decodes_every_value) { expect_decodes_every_value<compression::bf16>(bfloat16); }
TEST(fp16, rounds_to_nearest_even) { expect_rounds_to_nearest_even<compression::fp16>(binary16); }
TEST(bf16, rounds_to_nearest_even) { expect_rounds_to_nearest_even<compression::bf16>(bfloat16); }

TEST(fp16, shows_an_overflow_as_infinity) {
  EXPECT_EQ(encoded<compression::fp16>(65519.0f), 0x7bff);  // still rounds to 65504
  EXPECT_EQ(encoded<compression::fp16>(65520.0f), 0x7c00);
  EXPECT_EQ(encoded<compression::fp16>(-1e6f), 0xfc00);
  placed<compression::fp16> codec(1);
  const float large = 60000;
  auto into = codec.encode(std::span(&large, 1));
  const auto from = into;
  inline_queue queue;
  codec.policy.fold(queue, wire{into.data(), into.size()}, {from.data(), from.size()});
  EXPECT_TRUE(std::isinf(codec.decode(into)[0])) << "an overflow in the sum must be seen too";
}

TEST(bf16, shows_an_overflow_as_infinity) {
  EXPECT_EQ(encoded<compression::bf16>(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(encoded<compression::bf16>(3e38f), 0x7f62);
}

TEST(sixteen_bit, keep_nan_a_nan) {
  for (const std::uint32_t bits : {0x7fc0'0000u, 0x7f80'0001u, 0xffff'ffffu}) {
    const auto nan = std::bit_cast<float>(bits);
    EXPECT_TRUE(std::isnan(binary16.value(encoded<compression::fp16>(nan))));
    EXPECT_TRUE(std::isnan(bfloat16.value(encoded<compression::bf16>(nan))));
  }
}

template <class C>
void expect_folds_in_float(format its_format) {
  std::mt19937 random(2);
  constexpr std::size_t n = 50'000;
  std::vector<std::uint16_t> into(n);
  std::vector<std::uint16_t> from(n);
  for (std::size_t i = 0; i < n; ++i) {
    into[i] = static_cast<std::uint16_t>(random());
    from[i] = static_cast<std::uint16_t>(random());
  }
  const auto before = into;
  inline_queue queue;
  C{}.fold(queue, wire{reinterpret_cast<std::byte*>(into.data()), 2 * n},
           {reinterpret_cast<const std::byte*>(from.data()), 2 * n});
  for (std::size_t i = 0; i < n; ++i) {
    const double x = its_format.value(before[i]);
    const double y = its_format.value(from[i]);
    const float sum = static_cast<float>(x) + static_cast<float>(y);
    if (std::isnan(sum)) {
      ASSERT_TRUE(std::isnan(its_format.value(into[i])));
    } else {
      ASSERT_EQ(into[i], std::isinf(sum) ? encoded<C>(sum) : its_format.nearest(sum)) << x << y;
    }
  }
}

TEST(fp16, folds_in_float_and_rounds_once) { expect_folds_in_float<compression::fp16>(binary16); }
TEST(bf16, folds_in_float_and_rounds_once) { expect_folds_in_float<compression::bf16>(bfloat16); }

}  // namespace
}  // namespace tutti
