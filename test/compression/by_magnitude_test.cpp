// by_magnitude sends the elements that reach the magnitude, and checks each payload that it
// decodes. by_kth_magnitude does the same with the magnitude of the k-th largest element.
#include "tutti/compression/by_magnitude.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "compression/placed.hpp"
#include "tutti/compression/by_kth_magnitude.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/momentum_correction.hpp"

namespace tutti {
namespace {

using compression::by_kth_magnitude;
using compression::by_magnitude;
using floats = std::vector<float>;

/// It sends the two largest and all that are as large as the second, but never a zero.
TEST(by_kth_magnitude, sends_the_largest_and_their_like) {
  const floats gradient{1, -3, 0, 3, -7, 2, 3};
  placed<by_kth_magnitude> codec(gradient.size(), {.k = 2});
  EXPECT_EQ(codec.decode(codec.encode(gradient)), (floats{0, -3, 0, 3, -7, 0, 3}));
  EXPECT_EQ(codec.encode(gradient).size(), 4 + 8 * 4u);
  EXPECT_EQ(codec.decode(codec.encode(floats{0, 0, 1e-45f, 0, 0, 0, -0.0f})),
            (floats{0, 0, 1e-45f, 0, 0, 0, 0}));
  EXPECT_EQ(codec.encode(floats(7)).size(), 4u);
  EXPECT_FALSE(codec.overran);
  EXPECT_EQ(by_kth_magnitude({.density = 0.25}).expected(9), 4 + 8 * 2u);
}

/// Of elements that a sample judges well, that it misjudges, and that are too few for one.
TEST(by_kth_magnitude, finds_what_a_sort_finds) {
  for (const std::size_t n : {1u, 4095u, 4096u, 70'001u}) {
    floats normal(n);
    floats sparse(n);
    floats hot(n, -1e-3f);
    std::mt19937 random(5);
    std::normal_distribution<float> one;
    for (std::size_t i = 0; i < n; ++i) {
      normal[i] = one(random);
      sparse[i] = i % 5000 == 13 ? static_cast<float>(i) : 0.0f;
      hot[i] -= i > n / 2 && i < n / 2 + 90 ? static_cast<float>(i % 7) : 0.0f;
    }
    for (const floats& values : {normal, sparse, hot, floats(n, 2.0f)}) {
      floats sorted(n);
      std::ranges::transform(values, sorted.begin(), [](float each) { return std::fabs(each); });
      std::ranges::sort(sorted, std::greater<>());
      for (const double density : {0.0001, 0.001, 0.02, 0.3, 1.0}) {
        const by_kth_magnitude policy({.density = density});
        const float expected =
            std::max(sorted[policy.selected(n) - 1], std::numeric_limits<float>::denorm_min());
        inline_queue queue;
        float found = 0;
        policy.find_magnitude(queue, values, &found);
        ASSERT_EQ(found, expected) << density << " of " << n;
      }
    }
  }
}

TEST(by_magnitude, sends_what_reaches_it) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const float below = std::nextafter(0.5f, 0.0f);
  const floats gradient{0.5f, below, -0.5f, -below, 3, 0, -infinity, 1e-40f, -0.0f};
  placed<by_magnitude> codec(gradient.size(), {.magnitude = 0.5f});
  const auto payload = codec.encode(gradient);
  std::vector<std::uint32_t> words(payload.size() / 4);
  std::memcpy(words.data(), payload.data(), payload.size());
  const auto bits = [](float value) { return std::bit_cast<std::uint32_t>(value); };
  EXPECT_EQ(words, (std::vector<std::uint32_t>{4, 0, bits(0.5f), 2, bits(-0.5f), 4, bits(3), 6,
                                               bits(-infinity)}));
  EXPECT_EQ(codec.decode(payload), (floats{0.5f, 0, -0.5f, 0, 3, 0, -infinity, 0, 0}));
  EXPECT_FALSE(codec.overran);

  chunk_context scaled = codec.where();
  scaled.scale = 4;
  std::vector<std::byte> room(codec.policy.capacity(gradient.size()));
  std::size_t length = 0;
  inline_queue queue;
  codec.policy.encode(queue, gradient, wire{room.data(), room.size()}, scaled, &length);
  EXPECT_EQ(codec.decode({room.begin(), room.begin() + static_cast<std::ptrdiff_t>(length)}),
            (floats{0, 0, 0, 0, 3, 0, -infinity, 0, 0}))
      << "of a loss that was multiplied";
}

TEST(by_magnitude, sends_everything_at_zero) {
  for (const std::size_t n : awkward_sizes) {
    placed<by_magnitude> codec(n, {.magnitude = 0});
    const floats gradient = gradient_of(n, 1);
    const auto payload = codec.encode(gradient);
    EXPECT_EQ(payload.size(), 4 + 8 * n);
    EXPECT_EQ(codec.decode(payload), gradient);
    EXPECT_FALSE(codec.overran);
  }
}

/// Gradients are multiples of one half, whose sums are exact. Residuals are below the magnitude,
/// and nothing is lost.
TEST(by_magnitude, leaves_less_than_the_magnitude) {
  constexpr std::size_t n = 100;
  placed<compression::error_feedback<by_magnitude>> codec(n, {.magnitude = 4});
  std::vector<double> given(n);
  std::vector<double> sent(n);
  for (unsigned step = 0; step < 20; ++step) {
    floats gradient(n);
    for (std::size_t i = 0; i < n; ++i) {
      gradient[i] = static_cast<float>((i * 37 + step * 101) % 15) / 2 - 3.5f;
      given[i] += static_cast<double>(gradient[i]);
    }
    const floats decoded = codec.decode(codec.encode(gradient));
    for (std::size_t i = 0; i < n; ++i) {
      sent[i] += static_cast<double>(decoded[i]);
      EXPECT_LT(std::fabs(codec.row(0)[i]), 4.0f);
      EXPECT_EQ(sent[i] + static_cast<double>(codec.row(0)[i]), given[i]) << step << ", " << i;
    }
  }
}

TEST(by_magnitude, says_what_it_has_sent) {
  using corrected = compression::momentum_correction<compression::error_feedback<by_magnitude>>;
  placed<corrected> codec(3, {.momentum = 0.5, .decorated = {.magnitude = 2}});
  EXPECT_EQ(codec.decode(codec.encode(floats{1, 2, -3})), (floats{0, 2, -3}));
  EXPECT_EQ(floats(codec.row(0).begin(), codec.row(0).end()), (floats{1, 0, 0}));
  EXPECT_EQ(codec.decode(codec.encode(floats{1, 1, 1})), (floats{2.5, 0, 0}));
}

TEST(by_magnitude, does_not_believe_a_payload_blindly) {
  placed<by_magnitude> codec(4, {.magnitude = 1});
  const auto made_of = [](const std::vector<std::uint32_t>& words) {
    std::vector<std::byte> payload(4 * words.size());
    std::memcpy(payload.data(), words.data(), payload.size());
    return payload;
  };
  const auto one = std::bit_cast<std::uint32_t>(1.0f);
  EXPECT_EQ(codec.decode(made_of({1, 3, one, 2, one})), (floats{0, 0, 0, 1}));
  EXPECT_EQ(codec.decode({}), floats(4));

  const auto refused = [&](const std::vector<std::uint32_t>& words) -> std::string {
    inline_queue queue;
    floats sum(6, 1.0f);
    try {
      codec.accumulate_on(queue, made_of(words), std::span(sum).first(4));
    } catch (const communication_error& error) {
      EXPECT_EQ(sum, floats(6, 1.0f));
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refused({2, 2, one, 4, one}),
            "a payload names element 4 of a chunk that has 4 elements. Fix: give every "
            "rank the same compression options");
  EXPECT_EQ(refused({~0u, 3, one, 2, one}),
            "a payload states 4294967295 elements but holds 2. Fix: give every rank the same "
            "compression options");
  EXPECT_EQ(
      refused({1}),
      "a payload states 1 elements but holds 0. Fix: give every rank the same compression options");
}

TEST(by_magnitude, refuses_what_is_none) {
  EXPECT_THROW(by_magnitude({.magnitude = -1}), usage_error);
  EXPECT_THROW(by_magnitude({.magnitude = std::nanf("")}), usage_error);
  EXPECT_THROW(by_magnitude({.density = 2}), usage_error);
  EXPECT_THROW(by_magnitude().capacity(std::size_t{1} << 32), usage_error);
  EXPECT_EQ(by_magnitude({.density = 0.5}).expected(10), 44u);
}

}  // namespace
}  // namespace tutti
