// Compares compression::byteps_onebit with BytePS: with bytes that BytePS's own functions made, and
// with a plain loop.
#include "tutti/compression/byteps_onebit.hpp"

#include <cmath>
#include <cstddef>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

#include "compression/in_hex.hpp"
#include "compression/placed.hpp"
#include "tutti/compression/error_feedback.hpp"

namespace tutti {
namespace {

using compression::byteps_onebit;
using compression::sign_is_worth;

/// The words were made by the functions of OnebitCompressor that compress and that update the
/// error, of BytePS' byteps/common/compressor/impl/onebit.cc at commit f5df52fe, compiled alone, on
/// 64 elements. `errors` are the sums of errors times i + 1.
void sends_what_byteps_sends(sign_is_worth worth, const std::vector<std::string>& words,
                             const std::vector<double>& errors) {
  constexpr std::size_t n = 64;
  placed<compression::error_feedback<byteps_onebit>> codec(n, {.worth = worth});
  for (std::size_t step = 0; step < words.size(); ++step) {
    EXPECT_EQ(in_hex(codec.encode(gradient_in_512ths(n, step))), words[step]) << step;
    double weighted = 0;
    for (std::size_t i = 0; i < n; ++i) {
      weighted += static_cast<double>(i + 1) * codec.row(0)[i];
    }
    EXPECT_DOUBLE_EQ(weighted, errors[step]) << step;
  }
}

TEST(onebit, sends_what_byteps_sends) {
  sends_what_byteps_sends(
      sign_is_worth::mean_magnitude,
      {"00ff0f801f00ff0f0026713f", "7f1f00bf007f1f00287d893f", "8f00ff47ff8f00ff36ff783f"},
      {54.79840087890625, -12.685630798339844, -24.739079713821411});
  sends_what_byteps_sends(
      sign_is_worth::one,
      {"00ff0f801f00ff0f0000803f", "7f1f00ff007f1f000000803f", "8f00ff07ff8f00ff0000803f"},
      {55.146484375, 5.302734375, 4.185546875});
}

void packs_as_defined(const std::vector<float>& gradient, sign_is_worth worth) {
  const std::size_t n = gradient.size();
  placed<byteps_onebit> codec(n, {.worth = worth});
  const auto payload = codec.encode(gradient);
  ASSERT_FALSE(codec.overran);
  ASSERT_EQ(payload.size(), (n + 31) / 32 * 4 + 4);
  double sum = 0;
  for (const float each : gradient) {
    sum += std::fabs(double{each});
  }
  const double mean = n == 0 ? 0 : sum / static_cast<double>(n);
  float sent = 0;
  std::memcpy(&sent, payload.data() + payload.size() - 4, sizeof sent);
  ASSERT_NEAR(sent, worth == sign_is_worth::one ? 1.0 : mean, mean * 6e-8) << n;
  const auto decoded = codec.decode(payload);
  for (std::size_t place = 0; place < (payload.size() - 4) * 8; ++place) {
    std::uint32_t word = 0;
    std::memcpy(&word, payload.data() + place / 32 * 4, sizeof word);
    const bool bit = (word >> (31 - place % 32) & 1) != 0;
    ASSERT_EQ(bit, place < n && gradient[place] < 0) << place << " of " << n;
    if (place < n) {
      ASSERT_EQ(decoded[place], bit ? -sent : sent) << place << " of " << n;
    }
  }
}

TEST(onebit, packs_every_size_as_defined) {
  for (const std::size_t n : {0u, 1u, 31u, 32u, 33u, 1023u, 1024u, 1025u, 5000u}) {
    for (const auto worth : {sign_is_worth::mean_magnitude, sign_is_worth::one}) {
      packs_as_defined(gradient_of(n, 1), worth);
      for (const float all : {0.0f, -0.0f, -0.25f, std::numeric_limits<float>::denorm_min()}) {
        packs_as_defined(std::vector<float>(n, all), worth);
      }
    }
  }
}

TEST(onebit, without_scaling_conserves_in_one_pass) {
  for (const std::size_t n : awkward_sizes) {
    placed<compression::error_feedback<byteps_onebit>> codec(n, {.worth = sign_is_worth::one});
    const auto gradient = gradient_of(n, 3);
    const auto sent = codec.decode(codec.encode(gradient));
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_EQ(codec.row(0)[i], gradient[i] - sent[i]) << i << " of " << n;
    }
  }
}

}  // namespace
}  // namespace tutti
