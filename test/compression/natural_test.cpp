// Compares natural compression with the paper's definition in plain double.
#include "tutti/compression/natural.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "compression/placed.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/nesterov_momentum.hpp"
#include "tutti/compression/none.hpp"
#include "tutti/compression/push_only.hpp"
#include "tutti/compression/remembering_answers.hpp"

namespace tutti {
namespace {

using compression::natural;
constexpr float infinity = std::numeric_limits<float>::infinity();

/// SplitMix64 as it was published.
std::uint64_t mixed(std::uint64_t state) {
  std::uint64_t z = state + 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}
std::uint64_t number(std::uint64_t key, std::uint64_t place) {
  return mixed(key + place * 0x9e3779b97f4a7c15u);
}

/// Returns a uniform number for each element, from a seed, a rank, a step and a place.
double drawn(std::uint64_t seed, const chunk_context& where, std::size_t i) {
  const std::uint64_t key = number(number(seed, where.rank), where.step);
  return static_cast<double>(number(key, where.first_element + i) >> 41) / 8388608.0;
}

/// The powers of two below and above, and how far the value is from the lower to the upper, as a
/// share.
struct neighbours {
  double below;
  double above;
  double share;
};

neighbours of(float value) {
  const double magnitude = std::fabs(double{value});
  if (magnitude < double{FLT_MIN}) {
    return {0, double{FLT_MIN}, magnitude / double{FLT_MIN}};
  }
  const double below = std::exp2(std::floor(std::log2(magnitude)));
  return {below, std::min(2 * below, std::ldexp(1, 127)), magnitude / below - 1};
}

double by_definition(float value, double uniform) {
  if (!std::isfinite(value)) {
    return double{infinity};
  }
  const neighbours its = of(value);
  return its.share + uniform >= 1 ? its.above : its.below;
}

/// Returns magnitudes from the least to the largest float, with powers of two among them.
std::vector<float> of_all_magnitudes(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> exponent(-149, 127);
  std::uniform_real_distribution<double> digits(1, 2);
  std::vector<float> made(n);
  for (float& each : made) {
    const double power = std::ldexp(1, exponent(random));
    const double magnitude =
        random() % 4 == 0 ? power : std::min(power * digits(random), double{FLT_MAX});
    each = static_cast<float>(random() % 2 != 0 ? magnitude : -magnitude);
  }
  return made;
}

std::vector<std::vector<float>> inputs_of(std::size_t n) {
  std::vector<std::vector<float>> made = {gradient_of(n, 1), of_all_magnitudes(n, 2)};
  for (const float each : {0.0f, -0.0f, FLT_TRUE_MIN, -FLT_MIN, 1.0f, FLT_MAX, -FLT_MAX, infinity,
                           -infinity, std::nanf("")}) {
    made.emplace_back(n, each);
  }
  return made;
}

TEST(natural, draws_a_neighbour_by_its_nearness) {
  for (const std::size_t n : awkward_sizes) {
    for (const auto& gradient : inputs_of(n)) {
      placed<natural> codec(n, {.seed = 7});
      for (int step = 0; step < 2; ++step) {
        const chunk_context where = codec.where();
        const auto decoded = codec.decode(codec.encode(gradient), -0.0f);
        ASSERT_FALSE(codec.overran);
        for (std::size_t i = 0; i < n; ++i) {
          const double expected = by_definition(gradient[i], drawn(7, where, i));
          ASSERT_EQ(std::fabs(double{decoded[i]}), expected) << gradient[i] << " at " << i;
          ASSERT_TRUE(std::isnan(gradient[i]) ||
                      std::signbit(decoded[i]) == std::signbit(gradient[i]))
              << gradient[i];
        }
      }
    }
  }
}

/// The payload has nine bits an element. The first element's sign is the top bit of the first word,
/// and bytes of exponents follow the words.
TEST(natural, has_the_wire_that_it_documents) {
  EXPECT_EQ(natural::wire_bytes(0), 0u);
  EXPECT_EQ(natural::wire_bytes(1), 5u);
  EXPECT_EQ(natural::wire_bytes(64), 72u);
  EXPECT_EQ(natural::wire_bytes(65), 77u);
  placed<natural> codec(3);
  const auto payload = codec.encode(std::vector<float>{-2.0f, 0.25f, -0.0f});
  std::uint32_t signs = 0;
  std::memcpy(&signs, payload.data(), sizeof signs);
  EXPECT_EQ(signs, 0xa000'0000u);  // one word, in which each row is one element
  EXPECT_EQ(std::vector<std::byte>(payload.begin() + 4, payload.end()),
            (std::vector{std::byte{128}, std::byte{125}, std::byte{0}}));
}

/// The mean over many steps is within five standard deviations of the element. An unbiased rounding
/// would fail that once in 1.7 million elements.
TEST(natural, is_unbiased) {
  constexpr std::size_t n = 200;
  constexpr int steps = 4000;
  auto gradient = of_all_magnitudes(n, 9);
  for (float& each : gradient) {  // 2^127 is the largest power of two
    each = std::fabs(each) > 0x1p127f ? each / 2 : each;
  }
  placed<natural> codec(n);
  std::vector<double> sum(n);
  for (int step = 0; step < steps; ++step) {
    const auto decoded = codec.decode(codec.encode(gradient));
    for (std::size_t i = 0; i < n; ++i) {
      sum[i] += double{decoded[i]};
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    const neighbours its = of(gradient[i]);
    const double deviation =
        (its.above - its.below) * std::sqrt(its.share * (1 - its.share) / steps);
    ASSERT_NEAR(sum[i] / steps, double{gradient[i]}, 5 * deviation + 1e-12 * its.above) << i;
    const double variance = std::pow((its.above - its.below), 2) * its.share * (1 - its.share);
    ASSERT_TRUE(its.below == 0 || variance <= std::pow(double{gradient[i]}, 2) / 8 * 1.0000001)
        << "the paper's bound";
  }
}

TEST(natural, rounds_otherwise_in_another_place_step_rank_seed_and_on_the_way_back) {
  constexpr std::size_t n = 512;
  const auto gradient = gradient_of(n, 4);
  placed<natural> made(n);
  inline_queue queue;
  const auto payload_at = [&](const natural& policy, const chunk_context& where) {
    std::vector<std::byte> payload(natural::wire_bytes(n));
    policy.encode(queue, gradient, wire{payload.data(), payload.size()}, where);
    return payload;
  };
  const natural policy;
  const chunk_context here = made.where();
  const auto first = payload_at(policy, here);
  EXPECT_EQ(payload_at(policy, here), first);
  chunk_context later = here;
  later.step += 1;
  chunk_context elsewhere = here;
  elsewhere.first_element += 1;
  chunk_context other_rank = here;
  other_rank.rank += 1;
  for (const auto& other :
       {payload_at(policy, later), payload_at(policy, elsewhere), payload_at(policy, other_rank),
        payload_at(natural({.seed = 2}), here), payload_at(relay(policy), here)}) {
    EXPECT_NE(other, first);
  }
}

/// An owner encodes its answers as the decorated compressor's own answers are, and keeps their
/// residuals.
TEST(remembering_answers, are_those_of_what_it_decorates) {
  using compression::error_feedback;
  using compression::remembering_answers;
  auto gradient = gradient_of(512, 6);
  for (float& each : gradient) {
    each += 0.0f;  // as a residual does to -0
  }
  const remembering_answers<natural> policy(natural::options{.seed = 3});
  const auto answers = relay(policy);
  static_assert(std::is_same_v<decltype(answers), const error_feedback<natural>>);
  placed<error_feedback<natural>> made(gradient.size());
  placed<natural> expected(gradient.size());
  made.policy = answers;
  expected.policy = relay(natural({.seed = 3}));
  EXPECT_EQ(made.encode(gradient), expected.encode(gradient));
  placed<natural> pushed(gradient.size(), {.seed = 3});
  placed<remembering_answers<natural>> pushing(gradient.size(), {.seed = 3});
  EXPECT_EQ(pushing.encode(gradient), pushed.encode(gradient));

  using compression::nesterov_momentum;
  using compression::push_only;
  static_assert(std::is_same_v<decltype(relay(remembering_answers<push_only<natural>>())),
                               compression::none>);
  static_assert(std::is_same_v<decltype(relay(remembering_answers<nesterov_momentum<natural>>())),
                               error_feedback<natural>>);
}

}  // namespace
}  // namespace tutti
