// Compares top_k and its error feedback with a full sort.
#include "tutti/compression/top_k.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "compression/in_hex.hpp"
#include "compression/placed.hpp"
#include "compression/top_k_vectors.hpp"
#include "tutti/compression/error_feedback.hpp"

namespace tutti {
namespace {

using compression::top_k;

struct selection {
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
  bool operator==(const selection&) const = default;
};

selection selection_of(const std::vector<std::byte>& payload) {
  const std::size_t k = payload.size() / 8;
  selection made{std::vector<std::uint32_t>(k), std::vector<float>(k)};
  if (k != 0) {
    std::memcpy(made.indices.data(), payload.data(), 4 * k);
    std::memcpy(made.values.data(), payload.data() + 4 * k, 4 * k);
  }
  return made;
}

/// Returns all indices by magnitude, those of equal magnitudes by index.
std::vector<std::uint32_t> sorted(const std::vector<float>& values) {
  std::vector<std::uint32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::fabs(values[a]) > std::fabs(values[b]);
  });
  return order;
}

selection first_of(const std::vector<std::uint32_t>& order, const std::vector<float>& values,
                   std::size_t k) {
  selection made{{order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k)}, {}};
  std::sort(made.indices.begin(), made.indices.end());
  for (const std::uint32_t i : made.indices) {
    made.values.push_back(values[i]);
  }
  return made;
}
selection sorted_out(const std::vector<float>& values, std::size_t k) {
  return first_of(sorted(values), values, k);
}

void expect_selects(const std::vector<float>& gradient,
                    std::initializer_list<top_k::options> all_options) {
  const auto order = sorted(gradient);
  for (const top_k::options& with : all_options) {
    placed<top_k> codec(gradient.size(), with);
    const std::size_t k = codec.policy.selected(gradient.size());
    ASSERT_EQ(selection_of(codec.encode(gradient)), first_of(order, gradient, k))
        << k << " of " << gradient.size();
    ASSERT_FALSE(codec.overran);
  }
}

TEST(top_k, counts_as_published) {
  EXPECT_EQ(top_k({.density = 0.1}).selected(1000), 100u);
  EXPECT_EQ(top_k({.density = 0.1}).selected(7), 1u);
  EXPECT_EQ(top_k({.density = 0.1}).selected(19), 1u);
  EXPECT_EQ(top_k({.density = 0.1}).selected(0), 0u);
  EXPECT_EQ(top_k({.density = 1}).selected(7), 7u);
  EXPECT_EQ(top_k({.k = 5}).selected(1000), 5u);
  EXPECT_EQ(top_k({.k = 5}).selected(3), 3u);
  EXPECT_EQ(top_k({.k = 5}).wire_bytes(1000), 40u);
}

TEST(top_k, refuses_what_its_indices_cannot_name) {
  constexpr std::size_t most = 0xffff'ffff;
  EXPECT_EQ(top_k({.k = 5}).wire_bytes(most), 40u);
  EXPECT_THROW(top_k({.k = 5}).wire_bytes(most + 1), usage_error);
}

TEST(top_k, selects_what_a_sort_selects) {
  for (const std::size_t n : {1u, 7u, 32u, 33u, 1000u, 4099u, 40'000u, 200'003u}) {
    expect_selects(gradient_of(n, 1), {{.density = 0.0001},
                                       {.density = 0.001},
                                       {.density = 0.01},
                                       {.density = 0.3},
                                       {.density = 1.0}});
  }
}

/// Magnitudes from the least to the largest float are in one array, with many ties.
TEST(top_k, selects_among_all_magnitudes) {
  for (const std::size_t n : {31u, 1000u, 100'000u}) {
    std::vector<float> gradient(n);
    for (std::size_t i = 0; i < n; ++i) {
      const auto magnitude = std::ldexp(1.0f, static_cast<int>(i * 7919 % 277) - 149);
      gradient[i] = i % 3 == 0 ? -magnitude : magnitude;
    }
    expect_selects(gradient, {{.density = 0.0005},
                              {.density = 0.003},
                              {.density = 0.02},
                              {.density = 0.24},
                              {.density = 0.26},
                              {.density = 1.0}});
  }
}

TEST(top_k, takes_the_first_of_equals) {
  const std::vector<float> equals = {1, -2, 2, -2, 2, 0};
  placed<top_k> codec(equals.size(), {.k = 2});
  EXPECT_EQ(selection_of(codec.encode(equals)), (selection{{1, 2}, {-2, 2}}));
}

/// Inputs that are misjudged by a sample of any stride.
TEST(top_k, is_exact_where_a_sample_is_not) {
  constexpr std::size_t n = 300'000;
  std::vector<float> equal(n, -0.5f);
  std::vector<float> sparse(n);
  std::vector<float> descending(n);
  std::vector<float> hot(n, 1e-3f);
  for (std::size_t i = 0; i < n; ++i) {
    sparse[i] = i % 5000 == 13 ? static_cast<float>(i) : 0.0f;
    descending[i] = static_cast<float>(n - i);
    hot[i] += i > 100'000 && i < 100'900 ? static_cast<float>(i % 7) : 0.0f;
  }
  for (const auto& each : {equal, sparse, descending, hot}) {
    expect_selects(each,
                   {{.density = 0.00001}, {.density = 0.001}, {.density = 0.01}, {.density = 0.1}});
  }
}

TEST(top_k, is_exact_without_room_for_candidates) {
  const auto gradient = gradient_of(50'000, 3);
  selection selected{std::vector<std::uint32_t>(500), std::vector<float>(500)};
  inline_queue queue;
  kernels::select_largest(queue, std::span<const float>(gradient), 0,
                          {selected.indices, selected.values.data()}, {});
  EXPECT_EQ(selected, sorted_out(gradient, 500));
}

TEST(top_k, orders_subnormals_and_infinities) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr float least = std::numeric_limits<float>::denorm_min();
  const std::vector<float> gradient = {0, least, -2 * least, 1, -infinity, 3e38f, infinity};
  for (std::size_t k = 1; k <= gradient.size(); ++k) {
    expect_selects(gradient, {{.k = k}});
  }
}

TEST(top_k, names_the_element_that_is_not_a_number) {
  for (const std::size_t n : {100u, 100'000u}) {
    auto gradient = gradient_of(n, 4);
    gradient[42] = std::nanf("");
    placed<top_k> codec(n);
    try {
      codec.encode(gradient);
      FAIL() << n;
    } catch (const usage_error& sentence) {
      EXPECT_NE(std::string(sentence.what()).find("element 5042 "), std::string::npos)
          << sentence.what();
    }
  }
}

/// Infinities of both signs merge to NaN. Loss scaling sees that in the mean, although no rank's
/// gradient has a NaN.
TEST(top_k, merges_to_a_sum_that_is_no_number) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  inline_queue queue;
  placed<top_k> codec(3, {.k = 2});
  auto mine = codec.encode(std::vector<float>{1, infinity, 0});
  const auto theirs = codec.encode(std::vector<float>{0, -infinity, 2});
  std::vector<std::byte> scratch(codec.policy.merging_bytes(3));
  chunk_context where;
  where.scratch = scratch;
  std::vector<float> left_out(3);
  codec.policy.merge(queue, wire{mine.data(), mine.size()}, {theirs.data(), theirs.size()},
                     left_out, where);
  const auto sum = codec.decode(mine);
  EXPECT_TRUE(std::isnan(sum[1]));
  EXPECT_EQ(sum[2], 2);
  EXPECT_EQ(left_out, (std::vector<float>{1, 0, 0}));
}

/// Of a payload with a foreign element nothing is added, neither to a sum nor to what a merge
/// leaves out.
TEST(top_k, refuses_an_element_that_a_chunk_has_not) {
  inline_queue queue;
  placed<top_k> codec(10, {.k = 2});
  auto payload = codec.encode(std::vector<float>{0, 0, 3, 0, 0, 0, 0, 0, 0, -4});
  EXPECT_EQ(codec.decode(payload), (std::vector<float>{0, 0, 3, 0, 0, 0, 0, 0, 0, -4}));
  const std::uint32_t beyond = 10;
  std::memcpy(payload.data() + 4, &beyond, sizeof beyond);
  std::vector<float> sum(12, 1.0f);
  const auto said = [](const auto& adds) -> std::string {
    try {
      adds();
    } catch (const communication_error& refused) {
      return refused.what();
    }
    return "";
  };
  constexpr const char* sentence =
      "a payload names element 10 of a chunk that has 10 elements. Fix: give every rank "
      "the same compression options";
  EXPECT_EQ(said([&] { codec.accumulate_on(queue, payload, std::span(sum).first(10)); }), sentence);
  EXPECT_EQ(said([&] {
              codec.policy.add_absent(queue, {payload.data(), payload.size()}, {},
                                      std::span(sum).first(10));
            }),
            sentence);
  EXPECT_EQ(sum, std::vector<float>(12, 1.0f));
}

TEST(top_k, refuses_an_impossible_density) {
  for (const double density : {0.0, -1.0, 1.5, std::nan("")}) {
    EXPECT_THROW(top_k({.density = density}), usage_error) << density;
  }
}

TEST(error_feedback, follows_the_published_recurrence_with_top_k) {
  for (const std::size_t n : {7u, 1000u, 40'000u}) {
    placed<compression::error_feedback<top_k>> codec(n, {.density = 0.01});
    std::vector<float> residual(n);
    for (unsigned step = 0; step < 30; ++step) {
      const auto gradient = gradient_of(n, step);
      for (std::size_t i = 0; i < n; ++i) {
        residual[i] += gradient[i];
      }
      const auto expected = sorted_out(residual, std::max<std::size_t>(n / 100, 1));
      ASSERT_EQ(selection_of(codec.encode(gradient)), expected) << "step " << step;
      for (const std::uint32_t i : expected.indices) {
        residual[i] = 0;
      }
      ASSERT_TRUE(std::equal(residual.begin(), residual.end(), codec.row(0).begin()));
    }
  }
}

TEST(error_feedback, over_top_k_is_the_program_of_gtopk) {
  for (const test::selected_of_top_k& each : test::selections_of_top_k) {
    for (std::size_t i = 0; i < each.k.size(); ++i) {
      EXPECT_EQ(top_k({.density = each.density}).selected(test::lengths_of_top_k[i]), each.k[i])
          << each.density << " of " << test::lengths_of_top_k[i];
    }
  }
  placed<compression::error_feedback<top_k>> codec(48, {.density = 0.125});
  for (std::size_t step = 0; step < test::steps_of_top_k().size(); ++step) {
    const test::step_of_top_k& its = test::steps_of_top_k()[step];
    EXPECT_EQ(selection_of(codec.encode(gradient_in_512ths(48, step))),
              (selection{its.indices, its.values}))
        << step;
  }
  EXPECT_TRUE(std::ranges::equal(codec.row(0), test::residual_of_top_k));
}

TEST(error_feedback, passes_options_on) {
  const compression::error_feedback<top_k> half({.density = 0.5});
  EXPECT_EQ(half.wire_bytes(10), 40u);
}

}  // namespace
}  // namespace tutti
