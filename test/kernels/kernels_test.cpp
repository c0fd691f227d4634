// Kernels compared with plain scalar loops, bit for bit where the operation is exact.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

#include "tutti/kernels/arithmetic.hpp"
#include "tutti/kernels/cast.hpp"
#include "tutti/kernels/collect.hpp"
#include "tutti/kernels/selection.hpp"
#include "tutti/kernels/signs.hpp"
#include "tutti/kernels/widest.hpp"

namespace tutti {
namespace {

constexpr std::size_t sizes[] = {0, 1, 15, 16, 17, 1000, 1023, 1024, 1025, 5000};

std::vector<float> values(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> made(n);
  for (float& each : made) {
    each = normal(random);
  }
  return made;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

/// Prevents the compiler from joining a product and a sum into one rounding.
float rounded(float value) {
  volatile float held = value;
  return held;
}

TEST(add, adds_element_by_element) {
  for (const std::size_t n : sizes) {
    auto into = values(n, 1);
    const auto from = values(n, 2);
    auto expected = into;
    for (std::size_t i = 0; i < n; ++i) {
      expected[i] = into[i] + from[i];
    }
    // example-begin add
    inline_queue queue;
    kernels::add(queue, into, from);  // into[i] += from[i]
    // example-end
    EXPECT_TRUE(same_bits(into, expected)) << n;
  }
}

TEST(scale, multiplies_element_by_element) {
  for (const std::size_t n : sizes) {
    auto data = values(n, 3);
    auto expected = data;
    for (float& each : expected) {
      each *= 0.3f;
    }
    inline_queue queue;
    kernels::scale(queue, std::span(data), 0.3f);
    EXPECT_TRUE(same_bits(data, expected)) << n;
  }
}

TEST(add_scaled, rounds_the_product_and_the_sum) {
  for (const std::size_t n : sizes) {
    auto into = values(n, 4);
    const auto from = values(n, 5);
    auto expected = into;
    for (std::size_t i = 0; i < n; ++i) {
      expected[i] = into[i] + rounded(0.3f * from[i]);
    }
    inline_queue queue;
    kernels::add_scaled(queue, std::span(into), from, 0.3f);
    EXPECT_TRUE(same_bits(into, expected)) << n;
  }
}

TEST(blend, keeps_a_share_and_takes_another) {
  for (const std::size_t n : sizes) {
    auto into = values(n, 6);
    const auto from = values(n, 7);
    auto expected = into;
    for (std::size_t i = 0; i < n; ++i) {
      expected[i] = rounded(0.9f * into[i]) + rounded(0.3f * from[i]);
    }
    inline_queue queue;
    kernels::blend(queue, std::span(into), from, 0.9f, 0.3f);
    EXPECT_TRUE(same_bits(into, expected)) << n;
  }
}

TEST(swap, exchanges_every_element) {
  for (const std::size_t n : sizes) {
    auto one = values(n, 8);
    auto other = values(n, 9);
    const auto before = std::pair(one, other);
    inline_queue queue;
    kernels::swap(queue, std::span(one), std::span(other));
    EXPECT_TRUE(same_bits(one, before.second)) << n;
    EXPECT_TRUE(same_bits(other, before.first)) << n;
  }
}

TEST(negate, leaves_no_negative_zero) {
  std::vector<float> data = {1.5f, -2.0f, 0.0f, -0.0f};
  inline_queue queue;
  kernels::negate(queue, std::span(data));
  EXPECT_TRUE(same_bits(data, {-1.5f, 2.0f, 0.0f, 0.0f}));
}

TEST(sum, adds_in_the_order_of_its_inputs) {
  bool order_matters = false;
  for (const std::size_t n : sizes) {
    for (std::size_t ranks = 0; ranks <= 5; ++ranks) {
      std::vector<std::vector<float>> inputs;
      std::vector<const float*> pointers;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        inputs.push_back(values(n, static_cast<unsigned>(10 + rank)));
      }
      std::vector<float> expected(n);
      std::vector<float> backwards(n);
      for (std::size_t i = 0; i < n && ranks != 0; ++i) {
        expected[i] = inputs[0][i];
        backwards[i] = inputs[ranks - 1][i];
        for (std::size_t rank = 1; rank < ranks; ++rank) {
          expected[i] += inputs[rank][i];
          backwards[i] += inputs[ranks - 1 - rank][i];
        }
      }
      order_matters = order_matters || !same_bits(expected, backwards);
      for (const auto& each : inputs) {
        pointers.push_back(each.data());
      }
      inline_queue queue;
      std::vector<float> out(n, 7.0f);
      kernels::sum(queue, std::span(out), pointers);
      EXPECT_TRUE(same_bits(out, expected)) << ranks << " inputs of " << n;
      if (ranks != 0) {
        kernels::sum(queue, std::span(inputs[ranks - 1]), pointers);
        EXPECT_TRUE(same_bits(inputs[ranks - 1], expected)) << "into its own last input";
      }
    }
  }
  EXPECT_TRUE(order_matters) << "these inputs cannot tell one order from another";
}

TEST(mean_magnitude, is_the_mean_in_double_rounded_once) {
  for (const std::size_t n : sizes) {
    const auto input = values(n, 8);
    double total = 0;
    for (const float each : input) {
      total += std::fabs(each);
    }
    const double mean = n == 0 ? 0 : total / static_cast<double>(n);
    float result = -1;
    inline_queue queue;
    kernels::mean_magnitude(queue, input, &result);
    EXPECT_NEAR(result, mean, mean * 6e-8) << n;

    std::vector<float> into(n, 0.0f);
    float fused = -1;
    kernels::add_and_mean_magnitude(queue, into, input, &fused);
    EXPECT_EQ(fused, result) << n;
    EXPECT_EQ(into, input) << n;
  }
}

TEST(add_signs, adds_the_magnitude_with_each_sign) {
  for (const std::size_t n : sizes) {
    const auto input = values(n, 9);
    std::vector<std::uint32_t> words(kernels::sign_words(n) + 1, 77u);
    inline_queue queue;
    kernels::pack_signs(queue, input, words.data());
    EXPECT_EQ(words.back(), 77u) << "wrote past the words";
    auto sum = values(n, 10);
    auto expected = sum;
    for (std::size_t i = 0; i < n; ++i) {
      expected[i] += input[i] < 0 ? -0.3f : 0.3f;
    }
    const float magnitude = 0.3f;
    kernels::add_signs(queue, words.data(), &magnitude, sum);
    EXPECT_TRUE(same_bits(sum, expected)) << n;
  }
}

TEST(unpack_signs, writes_what_added_to_zeros_is_there) {
  for (const std::size_t n : sizes) {
    const auto input = values(n, 9);
    std::vector<std::uint32_t> words(kernels::sign_words(n));
    inline_queue queue;
    kernels::pack_signs(queue, input, words.data());
    for (const float magnitude : {0.3f, 0.0f}) {
      std::vector<float> out(n + 1, 77.0f);
      kernels::unpack_signs(queue, words.data(), &magnitude, std::span(out).first(n));
      std::vector<float> expected(n);
      kernels::add_signs(queue, words.data(), &magnitude, expected);
      EXPECT_EQ(out.back(), 77.0f) << "wrote past the elements";
      out.pop_back();
      EXPECT_TRUE(same_bits(out, expected)) << n;
    }
    for (const float worth : {1.0f, 64.0f}) {
      std::vector<float> votes(n);
      kernels::unpack_signs(queue, words.data(), worth, votes);
      for (std::size_t i = 0; i < n; ++i) {
        EXPECT_EQ(votes[i], input[i] < 0 ? -worth : worth) << i;
      }
    }
  }
}

TEST(half, is_usable_at_compile_time) {
  static_assert(kernels::half::to_bits(1.0f) == 0x3c00);
  static_assert(kernels::half::to_float(0x3555) == 0x1.554p-2f);
  static_assert(kernels::half::to_float(0x0001) == 0x1p-24f);
  static_assert(kernels::bfloat::to_bits(1.0f) == 0x3f80);
}

TEST(scatter_add, puts_back_what_clear_at_took) {
  std::vector<float> data = {1, 2, 3, 4};
  const std::vector<std::uint32_t> indices = {1, 3};
  const std::vector<float> taken = {2, 4};
  inline_queue queue;
  kernels::clear_at(queue, std::span(data), indices);
  EXPECT_EQ(data, (std::vector<float>{1, 0, 3, 0}));
  kernels::scatter_add(queue, indices, taken.data(), std::span(data));
  EXPECT_EQ(data, (std::vector<float>{1, 2, 3, 4}));
}

std::size_t collect_one_by_one(std::span<const float> input, std::uint32_t floor,
                               const kernels::candidates& room) {
  std::size_t found = 0;
  kernels::detail::reaching_one_by_one(input, 0, floor, [&](std::size_t i) {
    if (found < room.values.size()) {
      room.values[found] = input[i];
      room.indices[found] = static_cast<std::uint32_t>(i);
    }
    ++found;
  });
  return found <= room.values.size() ? found : 0;
}

TEST(collect, finds_the_same_on_every_processor) {
  // Four places of 16,384 elements are read before the first candidate is fetched.
  for (const std::size_t n : {0u, 1u, 15u, 16u, 33u, 127u, 128u, 129u, 5000u, 65'535u, 65'536u,
                              65'663u, 65'664u, 140'001u}) {
    const auto input = values(n, 11);
    for (const float floor : {0.0f, 0.5f, 3.0f, 100.0f}) {
      const std::uint32_t key = kernels::key_of(floor);
      std::vector<float> found_values;
      std::vector<std::uint32_t> indices;
      for (std::uint32_t i = 0; i < n; ++i) {
        if (std::fabs(input[i]) >= floor) {
          found_values.push_back(input[i]);
          indices.push_back(i);
        }
      }
      for (const auto how : {&kernels::collect, &collect_one_by_one}) {
        std::vector<float> room(n + 32);
        std::vector<std::uint32_t> places(n + 32);
        const kernels::candidates to{room, places};
        const std::size_t found = how(input, key, to);
        ASSERT_EQ(found, found_values.size()) << n << " elements above " << floor;
        EXPECT_TRUE(std::equal(found_values.begin(), found_values.end(), room.begin()));
        EXPECT_TRUE(std::equal(indices.begin(), indices.end(), places.begin()));
        if (found > 0) {
          EXPECT_EQ(how(input, key, {}), 0u) << "no room";
          std::vector<float> less(found - 1);
          std::vector<std::uint32_t> fewer(found - 1);
          EXPECT_EQ(how(input, key, {less, fewer}), 0u) << "room for one too few";
        }
      }
    }
  }
}

TEST(widest, runs_the_loop_once_at_any_width) {
  int runs = 0;
  kernels::widest([&] { ++runs; });
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace tutti
