// random_k: all ranks draw the same elements, each as often as stated, and each drawn value has the
// stated weight.
#include "tutti/compression/random_k.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <numeric>
#include <vector>

#include "compression/placed.hpp"
#include "tutti/base/error.hpp"
#include "tutti/compression/dense_below.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/nesterov_momentum.hpp"
#include "tutti/kernels/counted_random.hpp"

namespace tutti {
namespace {

using compression::dense_below;
using compression::error_feedback;
using compression::nesterov_momentum;
using compression::random_k;
using floats = std::vector<float>;

/// Returns which elements of a chunk of 1, 2, ... n are drawn in its next step.
std::vector<std::size_t> drawn_by(placed<random_k>& codec, std::size_t n) {
  floats gradient(n);
  std::iota(gradient.begin(), gradient.end(), 1.0f);
  const floats decoded = codec.decode(codec.encode(gradient));
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < n; ++i) {
    if (decoded[i] != 0) {
      EXPECT_EQ(decoded[i], gradient[i]);
      found.push_back(i);
    }
  }
  EXPECT_FALSE(codec.overran);
  return found;
}

TEST(random_k, draws_one_of_every_run) {
  for (const std::size_t n : {1u, 7u, 1000u, 4099u}) {
    for (const std::size_t k : {std::size_t{1}, n / 10 + 1, n / 2 + 1, n}) {
      placed<random_k> codec(n, {.k = k});
      for (int step = 0; step < 5; ++step) {
        const auto found = drawn_by(codec, n);
        ASSERT_EQ(found.size(), k) << n;
        for (std::size_t j = 0; j < k; ++j) {
          ASSERT_GE(found[j], j * n / k) << k << " of " << n;
          ASSERT_LT(found[j], (j + 1) * n / k) << k << " of " << n;
        }
      }
    }
  }
}

TEST(random_k, draws_others_in_every_step_and_from_every_seed) {
  placed<random_k> codec(1000, {.k = 100});
  placed<random_k> again(1000, {.k = 100});
  placed<random_k> other(1000, {.k = 100, .seed = 2});
  const auto first = drawn_by(codec, 1000);
  const auto second = drawn_by(codec, 1000);
  EXPECT_NE(first, second);
  EXPECT_EQ(drawn_by(again, 1000), first);
  EXPECT_NE(drawn_by(other, 1000), first);
}

/// In 20,000 steps each of 16 elements is drawn by one of 4 draws about 5000 times; six standard
/// deviations are 367.
TEST(random_k, draws_every_element_as_often) {
  constexpr std::size_t n = 16;
  placed<random_k> codec(n, {.k = 4});
  std::vector<int> times(n);
  for (int step = 0; step < 20'000; ++step) {
    for (const std::size_t each : drawn_by(codec, n)) {
      ++times[each];
    }
  }
  for (const int each : times) {
    EXPECT_NEAR(each, 5000, 367);
  }
}

TEST(random_k, remembers_nothing_of_runs_wherever_it_stands) {
  const random_k::options runs{.k = 2, .drawn_as = kernels::drawn_as::its_run};
  EXPECT_THROW(error_feedback<random_k>{runs}, usage_error);
  EXPECT_THROW((error_feedback<dense_below<random_k>>{{.compressed = runs, .bytes = 4}}),
               usage_error);
  EXPECT_THROW((nesterov_momentum<error_feedback<random_k>>{{runs, 0.9f}}), usage_error);
  EXPECT_NO_THROW((error_feedback<dense_below<random_k>>{{.compressed = {.k = 2}, .bytes = 4}}));
}

/// Runs of 3 and 4 elements. A decoded value is x times the run's length with a chance of one in
/// that length, so its standard deviation is |x| sqrt(length - 1). The bound of six of them fails
/// by chance in one run of 10^7.
TEST(random_k, is_unbiased_where_a_value_stands_for_its_run) {
  const floats gradient{1, -2, 0.5, 3, -1, 0.25, 7};
  constexpr int steps = 10'000;
  placed<random_k> codec(7, {.k = 2, .drawn_as = kernels::drawn_as::its_run});
  std::vector<double> sum(7);
  for (int step = 0; step < steps; ++step) {
    const floats decoded = codec.decode(codec.encode(gradient));
    for (std::size_t i = 0; i < 7; ++i) {
      sum[i] += static_cast<double>(decoded[i]);
    }
  }
  for (std::size_t i = 0; i < 7; ++i) {
    const double deviation = std::sqrt(3.0 / steps) * std::fabs(static_cast<double>(gradient[i]));
    EXPECT_NEAR(sum[i] / steps, static_cast<double>(gradient[i]), 6 * deviation) << i;
  }
}

/// An owner that encodes the sum of what all ranks drew draws the same elements and loses nothing,
/// whatever weight a value has.
TEST(random_k, draws_the_same_of_a_sum) {
  for (const auto as : {kernels::drawn_as::itself, kernels::drawn_as::its_run}) {
    placed<random_k> codec(100, {.k = 9, .drawn_as = as});
    placed<random_k> owner(100);
    owner.policy = codec.policy.relay();
    for (unsigned step = 0; step < 3; ++step) {
      const floats sum = codec.decode(codec.encode(gradient_of(100, step)));
      EXPECT_EQ(owner.decode(owner.encode(sum)), sum);
    }
  }
}

/// A second compressor that encodes the drawn values, on rank 0 and in step 0 with the same seed,
/// rounds by other random numbers.
TEST(random_k, draws_by_numbers_of_its_own) {
  inline_queue queue;
  std::array<std::uint64_t, 2> payload{};
  const wire out{reinterpret_cast<std::byte*>(payload.data()), 12};
  random_k({.k = 1}).encode(queue, floats{1}, out, chunk_context{});
  EXPECT_NE(kernels::counted_random(payload[0]).bits(0),
            kernels::counted_random(1).stream(0).stream(0).bits(0));
}

TEST(random_k, sends_no_indices) {
  EXPECT_EQ(random_k({.density = 0.1}).wire_bytes(1000), 8u + 400u);
  EXPECT_EQ(random_k({.density = 0.1}).wire_bytes(3), 8u + 4u);
  EXPECT_EQ(random_k({.density = 0.1}).wire_bytes(0), 0u);
  EXPECT_THROW(random_k().wire_bytes(std::size_t{1} << 32), usage_error);
  EXPECT_THROW(random_k({.density = 0}), usage_error);
  EXPECT_THROW(random_k({.density = 1.5}), usage_error);
}

}  // namespace
}  // namespace tutti
