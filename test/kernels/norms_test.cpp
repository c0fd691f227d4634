// Norms compared with plain loops in double, in the promised order.
#include "tutti/kernels/norms.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "tutti/kernels/adaptive_sum.hpp"

namespace tutti {
namespace {

constexpr std::size_t sizes[] = {0, 1, 15, 16, 17, 31, 33, 1000, 4097};

std::vector<float> values(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> made(n);
  for (float& each : made) {
    each = normal(random);
  }
  return made;
}

/// Adds every sixteenth square into one of sixteen sums, and then these in order.
double squares_in_lanes(const std::vector<float>& input) {
  std::array<double, 16> lanes{};
  for (std::size_t i = 0; i < input.size(); ++i) {
    lanes[i % 16] += std::pow(static_cast<double>(input[i]), 2);
  }
  double total = 0;
  for (const double each : lanes) {
    total += each;
  }
  return total;
}

double sum_of_squares(const std::vector<float>& input) {
  double result = -1;
  inline_queue queue;
  kernels::sum_of_squares(queue, input, &result);
  return result;
}

float largest_magnitude(const std::vector<float>& input) {
  float result = -1;
  inline_queue queue;
  kernels::largest_magnitude(queue, input, &result);
  return result;
}

TEST(root_mean_square, is_rounded_once) {
  for (const std::size_t n : sizes) {
    const auto input = values(n, 2);
    double squares = 0;
    for (const float each : input) {
      squares += std::pow(static_cast<double>(each), 2);
    }
    const double expected = n == 0 ? 0 : std::sqrt(squares / static_cast<double>(n));
    float result = -1;
    inline_queue queue;
    kernels::root_mean_square(queue, input, &result);
    EXPECT_NEAR(result, expected, expected * 6e-8) << n;

    std::vector<float> into(n, 0.0f);
    float fused = -1;
    kernels::add_and_root_mean_square(queue, into, input, &fused);
    EXPECT_EQ(fused, result) << n;
    EXPECT_EQ(into, input) << n;
  }
}

TEST(sum_of_squares, adds_in_sixteen_lanes_of_doubles) {
  for (const std::size_t n : sizes) {
    const auto input = values(n, 1);
    EXPECT_EQ(sum_of_squares(input), squares_in_lanes(input)) << n;
  }
}

TEST(sum_of_squares, neither_overflows_nor_vanishes) {
  constexpr float largest = std::numeric_limits<float>::max();
  constexpr float least = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(sum_of_squares({largest, largest}), 2 * std::pow(static_cast<double>(largest), 2));
  EXPECT_EQ(sum_of_squares(std::vector<float>(33, least)), 33 * std::ldexp(1, -298));
  EXPECT_TRUE(std::isnan(sum_of_squares({1, std::nanf(""), 1})));
  EXPECT_TRUE(std::isinf(sum_of_squares({1, -std::numeric_limits<float>::infinity()})));
}

TEST(largest_magnitude, finds_it_wherever_it_is) {
  for (const std::size_t n : sizes) {
    const auto input = values(n, 2);
    float expected = 0;
    for (const float each : input) {
      expected = std::fmax(expected, std::fabs(each));
    }
    EXPECT_EQ(largest_magnitude(input), expected) << n;
    for (std::size_t place = 0; place < n; ++place) {
      auto spiked = input;
      spiked[place] = -100;
      ASSERT_EQ(largest_magnitude(spiked), 100) << place << " of " << n;
    }
  }
}

TEST(largest_magnitude, shows_what_is_not_a_number) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const std::size_t place : {0u, 20u, 40u}) {
    std::vector<float> input(41, -infinity);
    EXPECT_EQ(largest_magnitude(input), infinity);
    input[place] = -std::nanf("");
    EXPECT_TRUE(std::isnan(largest_magnitude(input))) << place;
  }
}

TEST(largest_magnitude, of_zeros_is_positive_zero) {
  EXPECT_EQ(std::bit_cast<std::uint32_t>(largest_magnitude({-0.0f, -0.0f})), 0u);
  EXPECT_EQ(largest_magnitude({-std::numeric_limits<float>::denorm_min(), 0}),
            std::numeric_limits<float>::denorm_min());
}

TEST(count_nonfinite, adds_each_wherever_it_is) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  inline_queue queue;
  for (const std::size_t n : sizes) {
    auto input = values(n, 2);
    if (n > 0) {
      input[n / 2] = -std::numeric_limits<float>::max();
    }
    std::uint64_t count = 5;
    kernels::count_nonfinite(queue, input, &count);
    EXPECT_EQ(count, 5) << n;
    for (std::size_t place = 0; place < n; ++place) {
      const float before = std::exchange(input[place], place % 2 == 0 ? -infinity : std::nanf(""));
      count = 7;
      kernels::count_nonfinite(queue, input, &count);
      ASSERT_EQ(count, 8) << place << " of " << n;
      input[place] = before;
    }
    count = 0;
    kernels::count_nonfinite(queue, std::vector<float>(n, infinity), &count);
    EXPECT_EQ(count, n);
  }
}

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  return sum;
}

TEST(multiply, is_three_inner_products) {
  for (const std::size_t n : sizes) {
    const auto first = values(n, 1);
    const auto second = values(n, 2);
    kernels::inner_products got{-1, -1, -1};
    inline_queue queue;
    kernels::multiply(queue, first, second, &got);
    const double most = 1e-13 * static_cast<double>(n + 1);
    EXPECT_NEAR(got.dot, dot(first, second), most) << n;
    EXPECT_NEAR(got.first, dot(first, first), most) << n;
    EXPECT_NEAR(got.second, dot(second, second), most) << n;
  }
}

TEST(add_adaptively, weighs_by_products_of_longer_vectors) {
  const kernels::inner_products known{3, 2, 4};  // weights 1/4 and 5/8
  const kernels::inner_products zero{0, 0, 4};
  for (const std::size_t n : sizes) {
    const auto first = values(n, 1);
    const auto second = values(n, 2);
    inline_queue queue;
    const auto sum = [&](const auto& into, const auto& from, const auto& of, auto place) {
      std::vector<float> made = into;
      kernels::add_adaptively(queue, std::span(made), std::span(from), &of, place);
      return made;
    };
    std::vector<float> weighted(n);
    std::vector<float> plain(n);
    for (std::size_t i = 0; i < n; ++i) {
      const double a = first[i];
      const double b = second[i];
      weighted[i] = static_cast<float>(0.25 * a + 0.625 * b);
      plain[i] = static_cast<float>(a + b);
    }
    EXPECT_EQ(sum(first, second, known, kernels::operand::first), weighted) << n;
    EXPECT_EQ(sum(second, first, known, kernels::operand::second), weighted) << n;
    EXPECT_EQ(sum(first, second, zero, kernels::operand::first), plain) << n;
  }
}

}  // namespace
}  // namespace tutti
