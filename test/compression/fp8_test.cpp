// Compares fp8 with tables, in double, of all 256 numbers that each format has, and E3M0 with its
// sixteen.
#include "tutti/compression/fp8.hpp"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "compression/fused.hpp"
#include "compression/placed.hpp"
#include "tutti/base/error.hpp"
#include "tutti/compression/e3m0.hpp"
#include "tutti/compression/elementwise.hpp"
#include "tutti/kernels/cast.hpp"

namespace tutti {
namespace {

/// OCP's definition of a format: the number of each of its codes.
struct table {
  std::vector<double> numbers;  // of codes 0 to 127, as far as they are finite
  bool has_infinity;

  table(int exponent_bits, int digit_bits, bool with_infinity) : has_infinity(with_infinity) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    for (int code = 0; code < 128; ++code) {
      const int exponent = code >> digit_bits;
      const int digits = code % (1 << digit_bits);
      const bool last = exponent == (1 << exponent_bits) - 1;
      if (with_infinity ? last : code == 127) {
        break;
      }
      numbers.push_back(exponent == 0
                            ? std::ldexp(digits, 1 - bias - digit_bits)
                            : std::ldexp((1 << digit_bits) + digits, exponent - bias - digit_bits));
    }
  }

  double largest() const { return numbers.back(); }

  /// Returns the code of the number nearest to a magnitude, with ties to even, or the code past the
  /// last for a magnitude out of range.
  std::size_t nearest(double magnitude) const {
    for (std::size_t code = 0;; ++code) {
      if (code + 1 == numbers.size()) {
        const double step = numbers[code] - numbers[code - 1];
        const double middle = numbers[code] + step / 2;
        return magnitude < middle || (magnitude == middle && code % 2 == 0) ? code : code + 1;
      }
      const double middle = (numbers[code] + numbers[code + 1]) / 2;
      if (magnitude < middle || (magnitude == middle && code % 2 == 0)) {
        return code;
      }
    }
  }
};

struct e4m3_case {
  using policy = compression::fp8_e4m3;
  using format = kernels::e4m3;
  static table its_table() { return {4, 3, false}; }
};
struct e5m2_case {
  using policy = compression::fp8_e5m2;
  using format = kernels::e5m2;
  static table its_table() { return {5, 2, true}; }
};

template <class Case>
class fp8 : public testing::Test {};
using cases = testing::Types<e4m3_case, e5m2_case>;
TYPED_TEST_SUITE(fp8, cases);

// ---- the formats

TYPED_TEST(fp8, reads_every_code) {
  const table all = TypeParam::its_table();
  EXPECT_EQ(all.largest(), all.has_infinity ? 57344 : 448) << "as OCP prints it";
  for (unsigned code = 0; code < 256; ++code) {
    const float read = TypeParam::format::to_float(static_cast<std::uint8_t>(code));
    const std::size_t magnitude = code % 128;
    ASSERT_EQ(std::signbit(read), code >= 128) << code;
    if (magnitude < all.numbers.size()) {
      ASSERT_EQ(std::fabs(double{read}), all.numbers[magnitude]) << code;
    } else if (all.has_infinity && magnitude == all.numbers.size()) {
      ASSERT_TRUE(std::isinf(read)) << code;
    } else {
      ASSERT_TRUE(std::isnan(read)) << code;
    }
  }
}

/// Returns all numbers, the values half-way between two of them, and the floats next to those.
std::vector<float> around(const table& all) {
  std::vector<float> made = {FLT_TRUE_MIN, FLT_MIN, FLT_MAX,
                             static_cast<float>(all.largest() * 1.5)};
  for (std::size_t code = 0; code < all.numbers.size(); ++code) {
    const double here = all.numbers[code];
    const double step =
        code + 1 < all.numbers.size() ? all.numbers[code + 1] - here : here - all.numbers[code - 1];
    const auto middle = static_cast<float>(here + step / 2);
    for (const float each : {static_cast<float>(here), middle, std::nextafter(middle, 0.0f),
                             std::nextafter(middle, FLT_MAX)}) {
      made.push_back(each);
    }
  }
  return made;
}

TYPED_TEST(fp8, rounds_to_the_nearest_ties_to_even) {
  const table all = TypeParam::its_table();
  for (const float each : around(all)) {
    const std::size_t code = all.nearest(double{each});
    ASSERT_EQ(TypeParam::format::to_bits(each), code) << std::hexfloat << each;
    ASSERT_EQ(TypeParam::format::to_bits(-each), code + 128) << std::hexfloat << each;
  }
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(TypeParam::format::to_bits(infinity), all.numbers.size());
  EXPECT_EQ(TypeParam::format::to_bits(-infinity), all.numbers.size() + 128);
  for (const std::uint32_t bits : {0x7fc0'0000u, 0x7f80'0001u, 0xffff'ffffu}) {
    const auto nan = std::bit_cast<float>(bits);
    EXPECT_TRUE(std::isnan(TypeParam::format::to_float(TypeParam::format::to_bits(nan))));
  }
}

// ---- the compressor

struct sent {
  std::vector<float> scales;
  std::vector<std::uint8_t> codes;
};

sent read(const std::vector<std::byte>& payload, std::size_t n, std::size_t block) {
  sent made{std::vector<float>((n + block - 1) / block), std::vector<std::uint8_t>(n)};
  const std::size_t scales = made.scales.size() * sizeof(float);
  EXPECT_EQ(payload.size(), scales + n);
  if (n != 0) {
    std::memcpy(made.scales.data(), payload.data(), scales);
    std::memcpy(made.codes.data(), payload.data() + scales, n);
  }
  return made;
}

/// Returns the least power of two, from 2^-126 on, that brings the magnitude into range, as long as
/// the largest number times it is still a float.
double scale_for(const table& all, double magnitude) {
  double scale = std::ldexp(1, -126);
  while (magnitude > all.largest() * scale && all.largest() * scale * 2 <= double{FLT_MAX}) {
    scale *= 2;
  }
  return scale;
}

void expect_as_defined(const table& all, const std::vector<float>& input, std::size_t block,
                       const sent& payload, const std::vector<float>& decoded) {
  for (std::size_t begin = 0; begin < input.size(); begin += block) {
    const std::size_t end = std::min(input.size(), begin + block);
    double largest = 0;
    for (std::size_t i = begin; i < end; ++i) {
      largest = std::max(largest, std::fabs(double{input[i]}));
    }
    const double scale = scale_for(all, largest);
    ASSERT_EQ(double{payload.scales[begin / block]}, scale) << "of " << largest;
    for (std::size_t i = begin; i < end; ++i) {
      const std::size_t code =
          std::min(all.nearest(std::fabs(double{input[i]}) / scale), all.numbers.size() - 1);
      ASSERT_EQ(payload.codes[i], code + (std::signbit(input[i]) ? 128 : 0)) << input[i];
      ASSERT_EQ(std::fabs(double{decoded[i]}), all.numbers[code] * scale) << "exactly";
    }
  }
}

std::vector<float> of_all_magnitudes(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> exponent(-150, 128);
  std::vector<float> made(n);
  for (float& each : made) {
    const double magnitude = std::min(std::exp2(exponent(random)), double{FLT_MAX});
    each = static_cast<float>(random() % 2 != 0 ? magnitude : -magnitude);
  }
  return made;
}

constexpr std::size_t blocks[] = {1, 7, 256, 5000};

TYPED_TEST(fp8, is_one_rounding_of_what_the_scale_makes) {
  const table all = TypeParam::its_table();
  for (const std::size_t block : blocks) {
    for (const std::size_t n : awkward_sizes) {
      std::vector<std::vector<float>> inputs = {gradient_of(n, 1), of_all_magnitudes(n, 2)};
      for (const float each :
           {0.0f, -0.0f, 0.3f, FLT_MIN, -FLT_TRUE_MIN, FLT_MAX, -FLT_MAX, 448.0f, 57345.0f}) {
        inputs.emplace_back(n, each);
      }
      for (const auto& input : inputs) {
        placed<typename TypeParam::policy> codec(n, {.block = block});
        const auto payload = codec.encode(input);
        ASSERT_FALSE(codec.overran);
        expect_as_defined(all, input, block, read(payload, n, block), codec.decode(payload));
      }
    }
  }
}

TYPED_TEST(fp8, shows_what_is_not_finite_in_its_own_block) {
  for (const float odd : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    std::vector<float> gradient(192, -1.0f);
    gradient[70] = odd;
    placed<typename TypeParam::policy> codec(gradient.size(), {.block = 64});
    const auto decoded = codec.decode(codec.encode(gradient));
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      ASSERT_EQ(std::isnan(decoded[i]), i / 64 == 1) << odd << " at " << i;
    }
  }
}

TYPED_TEST(fp8, under_error_feedback_says_in_one_pass_what_steps_say) {
  for (const std::size_t block : blocks) {
    for (const std::size_t n : awkward_sizes) {
      for (const auto& gradient :
           {gradient_of(n, 7), std::vector<float>(n, -0.0f), std::vector<float>(n, FLT_TRUE_MIN),
            std::vector<float>(n, FLT_MAX / 8)}) {
        expect_fused_as_in_steps<typename TypeParam::policy>(n, {.block = block},
                                                             [&](int) { return gradient; });
      }
    }
  }
}

TYPED_TEST(fp8, refuses_an_empty_block) {
  EXPECT_THROW(typename TypeParam::policy({.block = 0}), usage_error);
}

// ---- four bits

/// Returns the nearest of 0 and the powers of two from `least` on, and of two equally near ones the
/// greater.
double nearest_power(double magnitude, double least) {
  if (magnitude < least / 2) {
    return 0;
  }
  double power = least;
  while (magnitude >= 1.5 * power) {
    power *= 2;
  }
  return power;
}

TEST(e3m0, is_the_nearest_of_seven_powers_of_two) {
  for (const std::size_t n : awkward_sizes) {
    std::vector<std::vector<float>> inputs = {gradient_of(n, 1), of_all_magnitudes(n, 2)};
    for (const float each : {0.0f, -0.0f, 0.3f, FLT_MIN, -FLT_TRUE_MIN, FLT_MAX, -FLT_MAX}) {
      inputs.emplace_back(n, each);
    }
    // The largest is 1; the others are half-way between powers of two and just below.
    inputs.emplace_back(n, 1.0f);
    for (std::size_t i = 1; i < n; ++i) {
      const float half_way = std::ldexp(i % 4 < 2 ? 1.5f : 1.0f, -static_cast<int>(i % 11));
      const float magnitude =
          std::min(i % 2 == 0 ? half_way : std::nextafter(half_way, 0.0f), 1.0f);
      inputs.back()[i] = i % 3 == 0 ? -magnitude : magnitude;
    }
    for (const auto& input : inputs) {
      placed<compression::e3m0> codec(n);
      const auto payload = codec.encode(input);
      ASSERT_FALSE(codec.overran);
      ASSERT_EQ(payload.size(), 4 + 4 * ((n + 7) / 8));
      double largest = 0;
      for (const float each : input) {
        largest = std::max(largest, std::fabs(double{each}));
      }
      const double greatest = std::clamp(nearest_power(largest, std::ldexp(1, -149)),
                                         std::ldexp(1, -119), std::ldexp(1, 127));
      const auto decoded = codec.decode(payload);
      for (std::size_t i = 0; i < n; ++i) {
        const double expected =
            std::min(nearest_power(std::fabs(double{input[i]}), greatest / 64), greatest);
        ASSERT_EQ(double{decoded[i]}, std::copysign(expected, double{input[i]}))
            << input[i] << " beside " << largest;
      }
    }
  }
}

/// -1 is code 15, and 1/64 is code 1. The first element of a byte is in its upper half.
TEST(e3m0, lies_in_words_behind_the_largest_magnitude) {
  placed<compression::e3m0> codec(3);
  const auto payload = codec.encode(std::vector{-1.0f, 0.015625f, 0.25f});
  const std::vector<std::byte> expected = {std::byte{0},    std::byte{0},    std::byte{0x80},
                                           std::byte{0x3f}, std::byte{0xf1}, std::byte{0x50},
                                           std::byte{0},    std::byte{0}};
  EXPECT_EQ(payload, expected);
}

TEST(e3m0, shows_what_is_not_finite_everywhere) {
  for (const float odd : {std::nanf(""), -std::numeric_limits<float>::infinity()}) {
    std::vector<float> gradient(70, -1.0f);
    gradient[40] = odd;
    gradient[41] = 0;
    placed<compression::e3m0> codec(gradient.size());
    for (const float each : codec.decode(codec.encode(gradient))) {
      ASSERT_TRUE(std::isnan(each));
    }
  }
}

/// Multiples of a sixteenth up to 7, with larger values clipped to 7: a format without floating
/// point.
struct sixteenths {
  using bits = std::int8_t;
  static bits to_bits(float value) {
    return static_cast<bits>(std::lrint(std::fmin(std::fmax(value * 16, -112.0f), 112.0f)));
  }
  static float to_float(bits its) { return static_cast<float>(its) / 16; }
};
struct in_double {
  using bits = double;
  static bits to_bits(float value) { return value; }
  static float to_float(bits its) { return static_cast<float>(its); }
};

/// The payload is the format's bits of every element, one after the other. A sum is computed in
/// float and becomes bits again.
template <class Format>
void is_of_each_element() {
  using bits = typename Format::bits;
  using compressor = compression::elementwise<Format>;
  static_assert(compression_policy<compressor>);
  for (const std::size_t n : awkward_sizes) {
    const auto mine = gradient_of(n, 1);
    const auto theirs = gradient_of(n, 2);
    placed<compressor> codec(n);
    auto payload = codec.encode(mine);
    const auto other = codec.encode(theirs);
    inline_queue queue;
    const auto decoded = codec.decode(payload, 1);
    codec.policy.fold(queue, wire{payload.data(), payload.size()}, {other.data(), other.size()});
    ASSERT_EQ(payload.size(), n * sizeof(bits));
    const auto sums = codec.decode(payload);
    for (std::size_t i = 0; i < n; ++i) {
      const float first = Format::to_float(Format::to_bits(mine[i]));
      const float second = Format::to_float(Format::to_bits(theirs[i]));
      ASSERT_EQ(decoded[i], 1 + first);
      ASSERT_EQ(sums[i], Format::to_float(Format::to_bits(first + second)));
    }
  }
}
TEST(elementwise, is_of_any_format) {
  is_of_each_element<kernels::e4m3>();
  is_of_each_element<kernels::e5m2>();
  is_of_each_element<sixteenths>();
  is_of_each_element<in_double>();
}

}  // namespace
}  // namespace tutti
