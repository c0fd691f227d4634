// Compares block_int8 with its definition, element by element in double.
#include "tutti/compression/block_int8.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <vector>

#include "compression/fused.hpp"
#include "compression/in_hex.hpp"
#include "compression/placed.hpp"
#include "compression/zero_plus_plus_vectors.hpp"
#include "tutti/compression/error_feedback.hpp"

namespace tutti {
namespace {

using compression::block_int8;

constexpr std::size_t blocks[] = {1, 7, 64, 256};

std::vector<std::size_t> sizes_around(std::size_t block) {
  return {0, 1, 31, 33, block, block + 1, 5 * block - 1, 5 * block, 5 * block + 1, 1003};
}

struct quantised {
  std::vector<float> scales;
  std::vector<std::int8_t> codes;
  bool operator==(const quantised&) const = default;
};

quantised read(const std::vector<std::byte>& payload, std::size_t n, std::size_t block) {
  quantised made{std::vector<float>((n + block - 1) / block), std::vector<std::int8_t>(n)};
  const std::size_t scales_bytes = made.scales.size() * sizeof(float);
  EXPECT_EQ(payload.size(), scales_bytes + n);
  if (n != 0) {
    std::memcpy(made.scales.data(), payload.data(), scales_bytes);
    std::memcpy(made.codes.data(), payload.data() + scales_bytes, n);
  }
  return made;
}

/// Returns the scale as documented: a 127th of the largest magnitude, not subnormal, rounded up to
/// 17 bits unless 127 times the result is not a finite float.
double scale_for(double largest) {
  const double exact =
      std::max<double>(static_cast<float>(largest / 127), std::numeric_limits<float>::min());
  int exponent = 0;
  const double digits = std::frexp(exact, &exponent);
  const double above = std::ldexp(std::ceil(std::ldexp(digits, 17)), exponent - 17);
  return 127 * above > FLT_MAX ? std::ldexp(std::floor(std::ldexp(digits, 17)), exponent - 17)
                               : above;
}

/// Quantises by the definition. Double holds every product of two floats exactly, so each cast
/// rounds once.
quantised by_definition(const std::vector<float>& input, std::size_t block) {
  quantised made;
  for (std::size_t begin = 0; begin < input.size(); begin += block) {
    const std::size_t end = std::min(input.size(), begin + block);
    double largest = 0;
    for (std::size_t i = begin; i < end; ++i) {
      largest = std::max(largest, std::fabs(static_cast<double>(input[i])));
    }
    const double scale = scale_for(largest);
    const double inverse = static_cast<float>(1 / scale);
    made.scales.push_back(static_cast<float>(scale));
    for (std::size_t i = begin; i < end; ++i) {
      const float product = static_cast<float>(static_cast<double>(input[i]) * inverse);
      made.codes.push_back(static_cast<std::int8_t>(std::nearbyint(static_cast<double>(product))));
    }
  }
  return made;
}

void expect_as_defined(const std::vector<float>& input, std::size_t block) {
  const std::size_t n = input.size();
  placed<block_int8> codec(n, {.block = block});
  const auto payload = codec.encode(input);
  ASSERT_FALSE(codec.overran);
  const quantised sent = read(payload, n, block);
  ASSERT_EQ(sent, by_definition(input, block)) << "n=" << n << ", block " << block;
  const auto decoded = codec.decode(payload);
  for (std::size_t i = 0; i < n; ++i) {
    const double scale = sent.scales[i / block];
    const double error = static_cast<double>(decoded[i]) - static_cast<double>(input[i]);
    ASSERT_EQ(decoded[i], sent.codes[i] * scale) << "the product is exact, element " << i;
    ASSERT_LE(std::fabs(error), scale * (0.5 + std::ldexp(1, -16))) << "element " << i;
    ASSERT_GE(sent.codes[i], -127);
  }
}

/// Returns magnitudes from the least to the largest float in one array.
std::vector<float> of_all_magnitudes(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> exponent(-150, 127);
  std::vector<float> made(n);
  for (float& each : made) {
    const double magnitude = std::exp2(exponent(random));
    each = static_cast<float>(random() % 2 ? magnitude : -magnitude);
  }
  return made;
}

TEST(block_int8, rounds_to_the_nearest_code) {
  for (const std::size_t block : blocks) {
    for (const std::size_t n : sizes_around(block)) {
      expect_as_defined(gradient_of(n, 1), block);
      expect_as_defined(of_all_magnitudes(n, 2), block);
      for (const float each : {0.0f, -0.0f, 0.3f, FLT_MIN, -FLT_TRUE_MIN, FLT_MAX, -FLT_MAX}) {
        expect_as_defined(std::vector<float>(n, each), block);
      }
    }
  }
}

/// The largest is 254, so the scale is 2, and odd numbers are half-way between two codes.
TEST(block_int8, rounds_ties_to_even) {
  std::vector<float> input = {254};
  std::vector<int> expected = {127};
  for (int code = -126; code < 126; ++code) {
    input.push_back(static_cast<float>(2 * code + 1));
    expected.push_back(code % 2 == 0 ? code : code + 1);
  }
  placed<block_int8> codec(input.size());
  const auto sent = read(codec.encode(input), input.size(), 256);
  EXPECT_EQ(sent.scales, std::vector<float>{2.0f});
  EXPECT_EQ(std::vector<int>(sent.codes.begin(), sent.codes.end()), expected);
}

TEST(block_int8, gives_the_largest_of_a_block_the_largest_code) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> exponent(-118, 127);
  for (int i = 0; i < 10'000; ++i) {
    const auto largest = static_cast<float>(std::exp2(exponent(random)));
    const std::vector<float> input = {largest, -largest};
    placed<block_int8> codec(2);
    ASSERT_EQ(read(codec.encode(input), 2, 256).codes, (std::vector<std::int8_t>{127, -127}))
        << std::hexfloat << largest;
  }
}

TEST(block_int8, sends_zeros_as_zeros) {
  for (const std::size_t n : {1u, 256u, 257u}) {
    placed<block_int8> codec(n);
    const auto payload = codec.encode(std::vector<float>(n, -0.0f));
    EXPECT_EQ(read(payload, n, 256).codes, std::vector<std::int8_t>(n));
    EXPECT_EQ(codec.decode(payload), std::vector<float>(n, 0.0f));
  }
}

/// ZeRO++'s scale is a 128th of the largest magnitude, and 1 for zeros. Its codes are clipped to
/// 127, so a positive element of the largest magnitude loses a whole scale. Here no element loses
/// more than half a scale, and codes differ by at most 1.
TEST(block_int8, divides_by_127_where_zero_plus_plus_clips) {
  for (const zero_plus_plus_blocks& theirs : blocks_by_zero_plus_plus()) {
    std::vector<float> input = gradient_in_512ths(256, theirs.step);
    input.resize(theirs.elements);
    expect_as_defined(input, theirs.block);
    placed<block_int8> codec(input.size(), {.block = theirs.block});
    const quantised ours = read(codec.encode(input), input.size(), theirs.block);
    std::vector<std::byte> codes;
    int clipped = 0;
    for (std::size_t i = 0; i < input.size(); ++i) {
      const std::size_t block = i / theirs.block;
      const auto begin = input.begin() + static_cast<std::ptrdiff_t>(block * theirs.block);
      const float largest = std::fabs(
          *std::max_element(begin, begin + static_cast<std::ptrdiff_t>(theirs.block),
                            [](float a, float b) { return std::fabs(a) < std::fabs(b); }));
      const float factor = largest == 0 ? 1 : 128 / largest;
      ASSERT_EQ(theirs.scales[block], 1 / factor) << "block " << block;
      const int nearest = static_cast<int>(std::nearbyint(input[i] * factor));
      const int code = std::min(nearest, 127);
      codes.push_back(static_cast<std::byte>(code));
      clipped += nearest > 127 ? 1 : 0;
      ASSERT_LE(std::abs(ours.codes[i] - code), 1) << "element " << i;
    }
    EXPECT_EQ(in_hex(codes).substr(0, 512), theirs.codes);
    EXPECT_GT(clipped, 0);
  }
}

TEST(block_int8, counts_its_wire_by_hand) {
  const block_int8 policy;
  EXPECT_EQ(policy.wire_bytes(0), 0u);
  EXPECT_EQ(policy.wire_bytes(1), 5u);
  EXPECT_EQ(policy.wire_bytes(256), 260u);
  EXPECT_EQ(policy.wire_bytes(257), 265u);
}

TEST(block_int8, shows_what_is_not_finite_in_its_own_block) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const float odd : {std::nanf(""), -std::nanf("7"), infinity, -infinity}) {
    std::vector<float> gradient(192, 1.0f);
    gradient[70] = odd;
    placed<block_int8> codec(gradient.size(), {.block = 64});
    const auto payload = codec.encode(gradient);
    const auto decoded = codec.decode(payload);
    const auto sent = read(payload, gradient.size(), 64);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const bool shown = i >= 64 && i < 128;
      ASSERT_EQ(std::isnan(decoded[i]), shown) << odd << " at " << i;
      ASSERT_EQ(sent.codes[i], shown ? 0 : 127);
    }
  }
}

TEST(block_int8, refuses_an_empty_block) { EXPECT_THROW(block_int8({.block = 0}), usage_error); }

void one_pass_says_what_steps_say(const std::vector<float>& gradient, std::size_t block) {
  SCOPED_TRACE(block);
  expect_fused_as_in_steps<block_int8>(gradient.size(), {.block = block},
                                       [&](int) { return gradient; });
}

TEST(block_int8, under_error_feedback_says_in_one_pass_what_steps_say) {
  for (const std::size_t block : blocks) {
    for (const std::size_t n : sizes_around(block)) {
      one_pass_says_what_steps_say(gradient_of(n, 7), block);
      one_pass_says_what_steps_say(std::vector<float>(n, 0.25f), block);
      one_pass_says_what_steps_say(std::vector<float>(n, -0.0f), block);
      one_pass_says_what_steps_say(std::vector<float>(n, FLT_TRUE_MIN), block);
      one_pass_says_what_steps_say(std::vector<float>(n, FLT_MAX / 8), block);
    }
  }
}

/// Where the product of code and scale is exact, so is the residual, and not even a rounding is
/// lost.
TEST(block_int8, under_error_feedback_loses_no_more_than_a_rounding) {
  constexpr std::size_t n = 1000;
  placed<compression::error_feedback<block_int8>> codec(n, {.block = 64});
  std::vector<double> given(n);
  std::vector<double> arrived(n);
  for (unsigned step = 0; step < 20; ++step) {
    const auto gradient = gradient_of(n, 80 + step);
    const auto sent = codec.decode(codec.encode(gradient));
    for (std::size_t i = 0; i < n; ++i) {
      given[i] += static_cast<double>(gradient[i]);
      arrived[i] += static_cast<double>(sent[i]);
      const double kept = static_cast<double>(codec.row(0)[i]);
      ASSERT_NEAR(given[i], arrived[i] + kept, (step + 1) * 2e-7) << "element " << i;
    }
  }
}

}  // namespace
}  // namespace tutti
