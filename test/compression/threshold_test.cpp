// Compares compression::threshold with MXNet's kvstore: with bytes that its own functions made, and
// with a plain loop for every other size.
#include "tutti/compression/threshold.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "compression/in_hex.hpp"
#include "compression/placed.hpp"
#include "tutti/base/error.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/push_only.hpp"

namespace tutti {
namespace {

using compression::error_feedback;
using compression::threshold;
using compression::two_bit;

/// Three pushes of one worker: the words, the sum of the decoded values, and the sum of the
/// residuals times 512 (i + 1), all exact.
struct pushes {
  float threshold;
  const char* words[3];
  double decoded[3];
  double left[3];
};

/// The pushes were made by quantize_1bit::Map, quantize_2bit::Map and their inverses, of MXNet's
/// src/kvstore/gradient_compression-inl.h at commit b84609d3, compiled alone, on 37 elements ((7919
/// i + 104729 step) mod 2001 - 1000) / 512.
template <unsigned Bits>
void sends_what_mxnet_sends(const pushes& theirs) {
  constexpr std::size_t n = 37;
  placed<error_feedback<threshold<Bits>>> codec(n, {.threshold = theirs.threshold});
  for (std::size_t step = 0; step < 3; ++step) {
    const auto payload = codec.encode(gradient_in_512ths(n, step));
    EXPECT_EQ(in_hex(payload), theirs.words[step]) << Bits << " bits, step " << step;
    double decoded = 0;
    double left = 0;
    const auto values = codec.decode(payload);
    for (std::size_t i = 0; i < n; ++i) {
      decoded += values[i];
      left += 512.0 * static_cast<double>(i + 1) * codec.row(0)[i];
    }
    EXPECT_EQ(decoded, theirs.decoded[step]) << Bits << " bits, step " << step;
    EXPECT_EQ(left, theirs.left[step]) << Bits << " bits, step " << step;
  }
}

TEST(threshold, sends_what_mxnet_sends) {
  sends_what_mxnet_sends<1>({0.5f,
                             {"7f8000ff80000000", "00ffc000f8000000", "7060fee060000000"},
                             {-3, -7, -3},
                             {121601, 187750, 172387}});
  sends_what_mxnet_sends<1>({1.25f,
                             {"780000f000000000", "00ff0000f8000000", "44c0fccc80000000"},
                             {-21, -11, -7},
                             {311041, 413030, 428387}});
  sends_what_mxnet_sends<2>(
      {0.5f,
       {"bfffc002aaaaffffc0000000", "80aaffff02aac0aaffc00000", "bc0af0aaffc2f02af0800000"},
       {3.5, 0, 0.5},
       {42241, 55398, 2403}});
  sends_what_mxnet_sends<2>(
      {1.25f,
       {"bfc0000000aaff0000000000", "8080ff0000000000ff000000", "00020002f000000200000000"},
       {3.75, 7.5, -1.25},
       {55425, -32282, -69533}});
}

/// Returns the code and its value, as MXNet's documentation defines them.
template <unsigned Bits>
std::pair<unsigned, double> code_of(double value, double threshold) {
  if (Bits == 1) {
    return value > threshold ? std::pair{1u, 1.0} : std::pair{0u, -1.0};
  }
  return value >= threshold    ? std::pair{3u, threshold}
         : value <= -threshold ? std::pair{2u, -threshold}
                               : std::pair{0u, 0.0};
}

template <unsigned Bits>
void packs_as_defined(const std::vector<float>& gradient, float at) {
  const std::size_t n = gradient.size();
  placed<threshold<Bits>> codec(n, {.threshold = at});
  const auto payload = codec.encode(gradient);
  ASSERT_FALSE(codec.overran);
  ASSERT_EQ(payload.size(), (n * Bits + 31) / 32 * 4);
  const auto decoded = codec.decode(payload);
  for (std::size_t bit = 0; bit < payload.size() * 8; bit += Bits) {
    const std::size_t i = bit / Bits;
    const unsigned byte = std::to_integer<unsigned>(payload[bit / 8]);
    const unsigned seen = byte >> (8 - Bits - bit % 8) & ((1u << Bits) - 1);
    if (i >= n) {
      ASSERT_EQ(seen, 0u) << "padding, n=" << n;
      continue;
    }
    const auto [code, worth] = code_of<Bits>(gradient[i], at);
    ASSERT_EQ(seen, code) << gradient[i] << " at " << i << " of " << n;
    ASSERT_EQ(decoded[i], worth) << gradient[i] << " at " << i << " of " << n;
  }
}

TEST(threshold, packs_every_size_as_defined) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const std::size_t n : {0u, 1u, 15u, 16u, 17u, 31u, 32u, 33u, 1023u, 1024u, 1025u, 5000u}) {
    for (const float at : {0.125f, 0.25f}) {  // a quarter is among the values
      packs_as_defined<1>(gradient_of(n, 1), at);
      packs_as_defined<2>(gradient_of(n, 1), at);
    }
    for (const float all : {0.0f, -0.0f, 0.25f, -0.25f, std::numeric_limits<float>::denorm_min(),
                            infinity, -infinity, std::nanf("")}) {
      packs_as_defined<1>(std::vector<float>(n, all), 0.25f);
      packs_as_defined<2>(std::vector<float>(n, all), 0.25f);
    }
  }
}

TEST(threshold, of_one_bit_may_have_any_threshold) {
  packs_as_defined<1>(gradient_of(100, 2), 0.0f);
  packs_as_defined<1>(gradient_of(100, 2), -0.25f);
}

TEST(threshold, of_two_bits_is_above_zero) {
  for (const float refused : {0.0f, -0.5f, std::nanf("")}) {
    EXPECT_THROW(two_bit({.threshold = refused}), usage_error) << refused;
  }
}

TEST(push_only, sends_sums_back_as_floats) {
  using pushed = compression::push_only<error_feedback<two_bit>>;
  static_assert(compression_policy<pushed>);
  static_assert(std::is_same_v<decltype(relay(pushed{})), compression::none>);
  EXPECT_EQ(pushed{}.wire_bytes(33), 12u);
  EXPECT_EQ(relay(pushed{}).wire_bytes(33), 33u * 4);
  using other_way_round = error_feedback<compression::push_only<two_bit>>;
  static_assert(std::is_same_v<decltype(relay(other_way_round{})), compression::none>);
  static_assert(
      std::is_same_v<decltype(relay(error_feedback<two_bit>{})), error_feedback<two_bit>>);
}

}  // namespace
}  // namespace tutti
