// Compares compression::dithering with BytePS: with bits that BytePS's own functions made, and with
// a plain oracle.
#include "tutti/compression/dithering.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "compression/in_hex.hpp"
#include "compression/placed.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/compression/error_feedback.hpp"

namespace tutti {
namespace {

using compression::dithering;
using kernels::chunk_norm;
using kernels::level_spacing;
using options = dithering::options;

/// The messages were made by the functions of DitheringCompressor that compress and decompress, and
/// by the coders that they use, of BytePS' byteps/common/compressor at commit f5df52fe. They were
/// compiled alone and run on 37 elements, with SplitMix64 from 42 on in place of their random
/// numbers. `weighted` is the sum of values times i + 1.
void sends_what_byteps_sends(const kernels::dithering_code& code, const std::string& message,
                             double weighted) {
  constexpr std::size_t n = 37;
  inline_queue queue;
  std::vector<std::byte> payload(kernels::dithering_bytes(code.most_bits(n)));
  std::size_t length = 0;
  kernels::encode_dithered(queue, gradient_in_512ths(n, 0), code, kernels::counted_random(42),
                           payload.data(), &length);
  ASSERT_LE(length, payload.size());
  payload.resize(length);
  std::vector<float> sum(n);
  kernels::add_dithered(queue, payload, code, sum);
  double seen = 0;
  for (std::size_t i = 0; i < n; ++i) {
    seen += static_cast<double>(i + 1) * sum[i];
  }
  EXPECT_EQ(seen, weighted);
  std::rotate(payload.begin(), payload.begin() + 8, payload.end());
  EXPECT_EQ(in_hex(payload), message);
}

TEST(dithering, sends_what_byteps_sends) {
  using enum level_spacing;
  using enum chunk_norm;
  sends_what_byteps_sends({5, linear, largest},
                          "c96436db9624cb92354dd3b3369b5dd759329bcdb8da9264bd0000000000fa3f",
                          104.6875);
  sends_what_byteps_sends({5, linear, euclidean},
                          "45515bf2f4ffff162f6a4bfe000000c0620000006b1ddb40", -49.30085563659668);
  sends_what_byteps_sends(
      {4, natural, largest},
      "820822c84c268820a9244992d96c36fd904166b34104116493c96432c0d49224fa0000000000fa3f",
      97.900390625);
  sends_what_byteps_sends({4, natural, euclidean},
                          "922449d2fe6f51db93a6e99f5ddb922400000080810000006b1ddb40",
                          73.608916401863098);
}

/// Returns Elias' delta code as it is defined.
std::string delta(std::uint64_t number) {
  const auto binary = [](std::uint64_t of) {
    std::string digits;
    for (; of > 0; of /= 2) {
      digits.insert(0, of % 2 == 0 ? "0" : "1");
    }
    return digits;
  };
  const std::string digits = binary(number);
  const std::string count = binary(digits.size());
  return std::string(count.size() - 1, '0') + count + digits.substr(1);
}

/// Returns the bits in a payload's words, whose number is in the header.
std::string bits_of(const std::vector<std::byte>& payload) {
  std::string bits;
  for (std::size_t at = 8; at < payload.size(); at += 4) {
    std::uint32_t word = 0;
    std::memcpy(&word, payload.data() + at, sizeof word);
    for (int bit = 31; bit >= 0; --bit) {
      bits += (word >> bit & 1) != 0 ? '1' : '0';
    }
  }
  std::uint32_t count = 0;
  std::memcpy(&count, payload.data(), sizeof count);
  EXPECT_LT(bits.size() - count, 32u);
  EXPECT_EQ(bits.substr(count).find('1'), std::string::npos) << "padding";
  return bits.substr(0, count);
}

/// Whatever is drawn, a value is one of the two levels around the element, and the payload is the
/// code of the values.
void codes_what_it_decodes(const std::vector<float>& gradient, const options& with) {
  const std::size_t n = gradient.size();
  placed<dithering> codec(n, with);
  const auto payload = codec.encode(gradient);
  ASSERT_FALSE(codec.overran);
  const auto decoded = codec.decode(payload);
  double norm = 0;
  for (const float each : gradient) {
    norm = with.norm == chunk_norm::largest ? std::max(norm, std::fabs(double{each}))
                                            : norm + double{each} * double{each};
  }
  norm = with.norm == chunk_norm::largest ? norm : std::sqrt(norm);
  const bool natural = with.spacing == level_spacing::natural;
  const double top = natural ? std::ldexp(1.0, static_cast<int>(with.levels) - 1)
                             : static_cast<double>(with.levels);
  std::string bits;
  std::size_t before = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double exact = norm == 0 ? 0 : std::fabs(double{gradient[i]}) / norm * top;
    const double level = norm == 0 ? 0 : std::round(std::fabs(double{decoded[i]}) / norm * top);
    const double below =
        !natural || exact < 1 ? std::floor(exact) : std::ldexp(1.0, std::ilogb(exact));
    const double step = natural ? std::max(1.0, below) : 1.0;
    ASSERT_TRUE(std::fabs(level - below) < 1e-4 || std::fabs(level - below - step) < 1e-4 ||
                std::fabs(level - exact) < 1e-4)
        << exact << " became " << level << " at " << i << " of " << n;
    if (level != 0) {
      ASSERT_EQ(std::signbit(decoded[i]), std::signbit(gradient[i]));
      bits += delta(i + 1 - before) + (std::signbit(gradient[i]) ? "1" : "0") +
              delta(static_cast<std::uint64_t>(level));
      before = i + 1;
    }
  }
  EXPECT_EQ(bits_of(payload), bits) << n;
}

TEST(dithering, codes_what_it_decodes) {
  for (const std::size_t n : awkward_sizes) {
    for (const auto spacing : {level_spacing::linear, level_spacing::natural}) {
      for (const auto norm : {chunk_norm::largest, chunk_norm::euclidean}) {
        for (const std::size_t levels : {std::size_t{1}, std::size_t{4}, std::size_t{16}}) {
          codes_what_it_decodes(gradient_of(n, 1), {levels, spacing, norm});
          codes_what_it_decodes(std::vector<float>(n, -0.25f), {levels, spacing, norm});
          codes_what_it_decodes(std::vector<float>(n, 0.0f), {levels, spacing, norm});
        }
      }
    }
  }
}

/// The mean of 4000 encodings is within four standard deviations of the element. By chance that
/// fails once in 16,000 elements, but these draws are always the same.
TEST(dithering, is_unbiased) {
  constexpr int times = 4000;
  const std::vector<float> gradient{1.0f, -0.7f, 0.01f, 0.26f, -0.49f, 0.0f, 0.123f};
  for (const auto spacing : {level_spacing::linear, level_spacing::natural}) {
    placed<dithering> codec(gradient.size(), {4, spacing});
    std::vector<double> sums(gradient.size());
    std::vector<double> squares(gradient.size());
    for (int time = 0; time < times; ++time) {
      const auto values = codec.decode(codec.encode(gradient));
      for (std::size_t i = 0; i < values.size(); ++i) {
        sums[i] += values[i];
        squares[i] += double{values[i]} * double{values[i]};
      }
    }
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const double mean = sums[i] / times;
      const double variance = std::max(0.0, squares[i] / times - mean * mean);
      EXPECT_NEAR(mean, gradient[i], 4 * std::sqrt(variance / times) + 1e-6) << i;
    }
  }
}

TEST(dithering, ranks_and_steps_draw_apart) {
  const auto gradient = gradient_of(1000, 4);
  placed<dithering> codec(gradient.size());
  EXPECT_NE(codec.encode(gradient), codec.encode(gradient));
}

/// The squares, and products of a level and the norm, overflow a float, or the squares underflow.
TEST(dithering, is_unharmed_by_the_largest_numbers_and_the_least) {
  constexpr float largest = std::numeric_limits<float>::max();
  for (const float scale : {largest, 1e38f, 1e30f, 1e-25f, 1e-36f}) {
    for (const auto spacing : {level_spacing::linear, level_spacing::natural}) {
      for (const auto norm : {chunk_norm::largest, chunk_norm::euclidean}) {
        const std::vector<float> gradient{scale * 0.5f, 0, scale * -0.75f, scale * 0.375f};
        placed<dithering> codec(gradient.size(), {16, spacing, norm});
        const auto decoded = codec.decode(codec.encode(gradient));
        const double whole = double{scale} * std::sqrt(0.25 + 0.5625 + 0.140625);
        for (std::size_t i = 0; i < gradient.size(); ++i) {
          const double exact = std::fabs(double{gradient[i]});
          const double level = spacing == level_spacing::linear ? whole / 16 : exact;
          EXPECT_NEAR(decoded[i], gradient[i], level * 1.0001) << scale;
          EXPECT_TRUE(exact == 0 || decoded[i] != 0) << scale;
        }
        EXPECT_TRUE(norm == chunk_norm::euclidean || decoded[2] == gradient[2]) << scale;
      }
    }
  }
}

TEST(dithering, shows_what_is_not_finite) {
  for (const float odd : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    for (const auto norm : {chunk_norm::largest, chunk_norm::euclidean}) {
      auto gradient = gradient_of(100, 5);
      gradient[50] = odd;
      placed<dithering> codec(gradient.size(), {.norm = norm});
      for (const float each : codec.decode(codec.encode(gradient))) {
        ASSERT_TRUE(std::isnan(each));
      }
    }
  }
}

TEST(dithering, believes_no_payload_blindly) {
  const auto gradient = gradient_of(300, 6);
  placed<dithering> codec(gradient.size(), {.levels = 3});
  auto payload = codec.encode(gradient);
  const auto decoded = codec.decode(payload);
  payload.insert(payload.end(), 40, std::byte{0xff});
  EXPECT_EQ(codec.decode(payload), decoded);
  for (std::size_t at = 0; at < payload.size(); ++at) {
    for (const unsigned value : {0u, 1u, 127u, 255u}) {
      auto broken = payload;
      broken[at] = static_cast<std::byte>(value);
      codec.decode(broken);  // the sanitizers check it
    }
  }
  for (std::size_t bytes = 0; bytes < payload.size(); ++bytes) {
    codec.decode({payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(bytes)});
  }
}

TEST(dithering, expects_about_what_normal_elements_make) {
  std::vector<float> gradient(100'000);
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::generate(gradient.begin(), gradient.end(), [&] { return normal(random); });
  for (const auto spacing : {level_spacing::linear, level_spacing::natural}) {
    for (const auto norm : {chunk_norm::largest, chunk_norm::euclidean}) {
      placed<dithering> codec(gradient.size(), {8, spacing, norm});
      const auto made = static_cast<double>(codec.encode(gradient).size());
      const auto expected = static_cast<double>(codec.policy.expected(gradient.size()));
      EXPECT_NEAR(expected / made, 1, 0.1) << made;
    }
  }
}

/// Each of n elements of one magnitude is at top / sqrt(n) of the first level above 0. Rounding
/// leaves on average sqrt(n) / top - 1 of the squared elements. With levels relative to the largest
/// magnitude it leaves nothing of them.
TEST(dithering, is_refused_under_error_feedback_where_it_may_leave_more_than_there_was) {
  using remembering = compression::error_feedback<dithering>;
  constexpr int draws = 400;
  const auto left_by = [](const options& with, std::size_t n) {
    const std::vector<float> gradient(n, 0.5f);
    placed<dithering> codec(n, with);
    double left = 0;
    for (int draw = 0; draw < draws; ++draw) {
      for (const float each : codec.decode(codec.encode(gradient))) {
        left += (0.5 - double{each}) * (0.5 - double{each}) / draws;
      }
    }
    return left / (0.25 * static_cast<double>(n));
  };
  for (const auto spacing : {level_spacing::linear, level_spacing::natural}) {
    const options with{4, spacing, chunk_norm::euclidean};
    const std::size_t top = spacing == level_spacing::linear ? 4 : 8;
    for (const std::size_t n :
         {2 * top * top, 7 * top * top / 2 - 1, 4 * top * top, std::size_t{1000}}) {
      const double share = std::sqrt(static_cast<double>(n)) / static_cast<double>(top) - 1;
      EXPECT_NEAR(left_by(with, n), share, 0.1) << n;
      if (n < 4 * top * top) {
        EXPECT_NO_THROW(remembering(with).capacity(n)) << n;
      } else {
        EXPECT_THROW(remembering(with).capacity(n), usage_error) << n;
      }
    }
    EXPECT_NO_THROW(remembering(options{1, spacing, chunk_norm::largest}).capacity(1'000'000));
  }
  EXPECT_EQ(left_by({.levels = 1}, 100), 0);
}

TEST(dithering, refuses_levels_that_it_cannot_count) {
  EXPECT_THROW(dithering({.levels = 0}), usage_error);
  EXPECT_THROW(dithering({.levels = 65536}), usage_error);
  EXPECT_THROW(dithering({.levels = 25, .spacing = level_spacing::natural}), usage_error);
}

}  // namespace
}  // namespace tutti
