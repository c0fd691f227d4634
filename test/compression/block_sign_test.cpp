// Compares block_sign with its definition, block by block in double.
#include "tutti/compression/block_sign.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "compression/fused.hpp"
#include "compression/placed.hpp"
#include "compression/sign_layout.hpp"
#include "tutti/compression/error_feedback.hpp"

namespace tutti {
namespace {

using compression::block_sign;

constexpr std::size_t blocks[] = {32, 64, 512, 4096};

/// Returns sizes around the ends of words and of blocks.
std::vector<std::size_t> sizes_around(std::size_t block) {
  return {0, 1, 31, 33, block - 1, block, block + 1, 3 * block - 31, 3 * block, 3 * block + 33};
}

std::vector<double> part(const std::vector<float>& of, std::size_t begin, std::size_t block) {
  const auto first = of.begin() + static_cast<std::ptrdiff_t>(begin);
  return {first, first + static_cast<std::ptrdiff_t>(std::min(block, of.size() - begin))};
}

double mean_magnitude(const std::vector<double>& of) {
  double total = 0;
  for (const double each : of) {
    total += std::fabs(each);
  }
  return total / static_cast<double>(of.size());
}

std::vector<float> means_of(const std::vector<std::byte>& payload, std::size_t count) {
  std::vector<float> means(count);
  if (count != 0) {
    std::memcpy(means.data(), payload.data(), count * sizeof(float));
  }
  return means;
}

void expect_as_defined(const std::vector<float>& gradient, std::size_t block) {
  const std::size_t n = gradient.size();
  placed<block_sign> codec(n, {.block = block});
  const auto payload = codec.encode(gradient);
  ASSERT_FALSE(codec.overran);
  const auto means = means_of(payload, (n + block - 1) / block);
  const auto decoded = codec.decode(payload);
  packed_words expected;
  for (std::size_t begin = 0; begin < n; begin += block) {
    const auto each = part(gradient, begin, block);
    const auto its_words = published_layout(each);
    expected.insert(expected.end(), its_words.begin(), its_words.end());
    const double mean = mean_magnitude(each);
    const float sent = means[begin / block];
    ASSERT_NEAR(sent, mean, mean * 6e-8) << "block at " << begin << " of " << n;
    for (std::size_t i = 0; i < each.size(); ++i) {
      ASSERT_EQ(decoded[begin + i], each[i] < 0 ? -sent : sent) << begin + i << " of " << n;
    }
  }
  EXPECT_EQ(words_of(payload, means.size() * sizeof(float)), expected) << block << ", n=" << n;
}

TEST(block_sign, sends_each_blocks_mean_magnitude_and_signs) {
  for (const std::size_t block : blocks) {
    for (const std::size_t n : sizes_around(block)) {
      expect_as_defined(gradient_of(n, 1), block);
      expect_as_defined(std::vector<float>(n, -0.5f), block);
      expect_as_defined(std::vector<float>(n, 0.0f), block);
      expect_as_defined(std::vector<float>(n, -std::numeric_limits<float>::denorm_min()), block);
      expect_as_defined(std::vector<float>(n, std::numeric_limits<float>::max()), block);
    }
  }
}

TEST(block_sign, counts_its_wire_by_hand) {
  const block_sign policy({.block = 64});
  EXPECT_EQ(policy.wire_bytes(0), 0u);
  EXPECT_EQ(policy.wire_bytes(1), 4u + 4u);
  EXPECT_EQ(policy.wire_bytes(64), 4u + 8u);
  EXPECT_EQ(policy.wire_bytes(65), 8u + 12u);
  EXPECT_EQ(block_sign{}.wire_bytes(4 * 512), 4u * 4u + 4u * 64u);
}

TEST(block_sign, of_two_blocks_by_hand) {
  std::vector<float> gradient(40, 2.0f);
  gradient[0] = -2.0f;
  std::fill(gradient.begin() + 32, gradient.end(), 0.5f);
  gradient[33] = -0.5f;
  placed<block_sign> codec(40, {.block = 32});
  const auto payload = codec.encode(gradient);
  EXPECT_EQ(means_of(payload, 2), (std::vector<float>{2.0f, 0.5f}));
  EXPECT_EQ(words_of(payload, 8), (packed_words{0x8000'0000u, 0x4000'0000u}));
  EXPECT_EQ(codec.decode(payload), gradient);
}

TEST(block_sign, shows_what_is_not_finite_in_its_own_block) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const float odd : {std::nanf(""), -std::nanf(""), infinity, -infinity}) {
    std::vector<float> gradient(192, 1.0f);
    gradient[70] = odd;
    placed<block_sign> codec(gradient.size(), {.block = 64});
    const auto decoded = codec.decode(codec.encode(gradient));
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      ASSERT_EQ(std::isfinite(decoded[i]), i < 64 || i >= 128) << odd << " at " << i;
    }
  }
}

TEST(block_sign, refuses_blocks_that_share_words) {
  for (const std::size_t block :
       {std::size_t{0}, std::size_t{1}, std::size_t{31}, std::size_t{48}}) {
    EXPECT_THROW(block_sign({.block = block}), usage_error) << block;
  }
}

void one_pass_says_what_steps_say(const std::vector<float>& gradient, std::size_t block) {
  SCOPED_TRACE(block);
  expect_fused_as_in_steps<block_sign>(gradient.size(), {.block = block},
                                       [&](int) { return gradient; });
}

TEST(block_sign, under_error_feedback_says_in_one_pass_what_steps_say) {
  for (const std::size_t block : blocks) {
    for (const std::size_t n : sizes_around(block)) {
      one_pass_says_what_steps_say(gradient_of(n, 7), block);
      one_pass_says_what_steps_say(std::vector<float>(n, 0.25f), block);
      one_pass_says_what_steps_say(std::vector<float>(n, -0.0f), block);
      one_pass_says_what_steps_say(std::vector<float>(n, std::numeric_limits<float>::denorm_min()),
                                   block);
      one_pass_says_what_steps_say(std::vector<float>(n, std::numeric_limits<float>::max() / 8),
                                   block);
    }
  }
}

TEST(block_sign, under_error_feedback_follows_the_published_recurrence) {
  constexpr std::size_t n = 1000;
  constexpr std::size_t block = 64;
  placed<compression::error_feedback<block_sign>> codec(n, {.block = block});
  std::vector<double> residual(n);
  for (unsigned step = 0; step < 20; ++step) {
    const auto gradient = gradient_of(n, 60 + step);
    codec.encode(gradient);
    for (std::size_t begin = 0; begin < n; begin += block) {
      const std::size_t end = std::min(n, begin + block);
      double total = 0;
      for (std::size_t i = begin; i < end; ++i) {
        residual[i] += static_cast<double>(gradient[i]);
        total += std::fabs(residual[i]);
      }
      for (std::size_t i = begin; i < end; ++i) {
        const double mean = total / static_cast<double>(end - begin);
        residual[i] -= residual[i] < 0 ? -mean : mean;
        ASSERT_NEAR(codec.row(0)[i], residual[i], 1e-6) << "step " << step << ", element " << i;
      }
    }
  }
}

}  // namespace
}  // namespace tutti
