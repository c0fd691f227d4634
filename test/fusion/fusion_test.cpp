// Fusions: what every grouping must satisfy, then each policy against its own words.
#include <algorithm>
#include <cstddef>
#include <gtest/gtest.h>
#include <numeric>
#include <random>
#include <vector>

#include "support/policies.hpp"
#include "tutti/fusion/all.hpp"
#include "tutti/fusion/none.hpp"
#include "tutti/fusion/of_small.hpp"
#include "tutti/fusion/up_to.hpp"

namespace tutti {
namespace {

using ends = std::vector<std::size_t>;

/// A model's tensors in backward order: ids descend.
std::vector<tensor_facts> backward_order(const std::vector<std::size_t>& elements) {
  std::vector<tensor_facts> facts;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    facts.push_back({tensor_id{static_cast<std::uint32_t>(elements.size() - 1 - i)}, elements[i]});
  }
  return facts;
}

std::vector<std::size_t> random_sizes(std::mt19937& random) {
  std::vector<std::size_t> sizes(random() % 20);
  for (std::size_t& each : sizes) {
    each = random() % 4 == 0 ? random() % 3 : random() % 400;
  }
  return sizes;
}

template <class F>
class fusion_law : public testing::Test {};
TYPED_TEST_SUITE(fusion_law, testing_lists::fusions);

TYPED_TEST(fusion_law, covers_every_tensor_once_in_order) {
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    const auto sizes = random_sizes(random);
    const ends groups = TypeParam{}.group_ends(backward_order(sizes), profile{});
    ASSERT_EQ(groups.empty(), sizes.empty());
    ASSERT_TRUE(sizes.empty() || (groups.front() > 0 && groups.back() == sizes.size()));
    ASSERT_TRUE(std::ranges::is_sorted(groups, std::less_equal{})) << "an empty group";
  }
}

TEST(fusion_none, leaves_every_tensor_alone) {
  EXPECT_EQ(fusion::none{}.group_ends(backward_order({5, 0, 7}), {}), (ends{1, 2, 3}));
}

TEST(fusion_all, makes_one_group) {
  EXPECT_EQ(fusion::all{}.group_ends(backward_order({5, 0, 7}), {}), (ends{3}));
}

/// The rule as a walk over labels, each tensor's group number; written apart from the policy.
ends oracle(const std::vector<std::size_t>& sizes, const fusion::up_to::options& with) {
  std::vector<std::size_t> group_of(sizes.size());
  std::size_t group = 0;
  double total = 0;
  bool open = false;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const double bytes = 4.0 * static_cast<double>(sizes[i]);
    const auto limit = [&] {
      return static_cast<double>(group == 0 && with.first_bytes ? with.first_bytes
                                 : with.elements                ? 4 * with.elements
                                                                : with.bytes);
    };
    if (with.crossing == fusion::crossing::out && open && total + bytes > limit()) {
      ++group;
      total = 0;
    }
    group_of[i] = group;
    total += bytes;
    open = true;
    if (limit() == 0 || (with.crossing == fusion::crossing::in && total >= limit())) {
      ++group;
      total = 0;
      open = false;
    }
  }
  ends result;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (i + 1 == sizes.size() || group_of[i + 1] != group_of[i]) {
      result.push_back(i + 1);
    }
  }
  return result;
}

TEST(fusion_up_to, equals_an_independent_walk) {
  std::mt19937 random(3);
  for (int round = 0; round < 10'000; ++round) {
    const auto sizes = random_sizes(random);
    fusion::up_to::options with{.bytes = random() % 5 == 0 ? 0 : random() % 3000};
    with.elements = random() % 2 ? random() % 700 : 0;
    with.first_bytes = random() % 2 ? random() % 500 : 0;
    with.crossing = random() % 2 ? fusion::crossing::in : fusion::crossing::out;
    ASSERT_EQ(fusion::up_to(with).group_ends(backward_order(sizes), {}), oracle(sizes, with));
  }
}

TEST(fusion_up_to, takes_the_crossing_tensor_in) {
  const fusion::up_to two_elements({.bytes = 8, .crossing = fusion::crossing::in});
  EXPECT_EQ(two_elements.group_ends(backward_order({1, 5, 1, 1, 1}), {}), (ends{2, 4, 5}));
}

TEST(fusion_up_to, leaves_the_crossing_tensor_out_and_a_large_one_alone) {
  const fusion::up_to two_elements({.bytes = 8, .crossing = fusion::crossing::out});
  EXPECT_EQ(two_elements.group_ends(backward_order({1, 5, 1, 1, 1}), {}), (ends{1, 2, 4, 5}));
}

TEST(fusion_up_to, leaves_all_alone_at_zero) {
  for (const auto crossing : {fusion::crossing::in, fusion::crossing::out}) {
    const fusion::up_to zero({.bytes = 0, .crossing = crossing});
    EXPECT_EQ(zero.group_ends(backward_order({0, 0, 3, 0}), {}), (ends{1, 2, 3, 4}));
  }
}

TEST(fusion_up_to, closes_the_first_group_early) {
  const fusion::up_to ddp({.bytes = 12, .first_bytes = 4});
  EXPECT_EQ(ddp.group_ends(backward_order({1, 1, 1, 1, 1}), {}), (ends{1, 4, 5}));
}

TEST(fusion_up_to, counts_elements_where_asked) {
  const fusion::up_to three({.elements = 3});
  EXPECT_EQ(three.group_ends(backward_order({1, 1, 1, 1}), {}), (ends{3, 4}));
}

/// The first tensor of each group, in forward order, where these are small.
std::vector<std::size_t> packed(std::size_t tensors, const std::vector<std::size_t>& small,
                                std::size_t at_most) {
  std::vector<std::size_t> backward(tensors, 101);
  for (const std::size_t each : small) {
    backward[tensors - 1 - each] = 100;
  }
  const fusion::of_small how({.bytes = 400, .tensors = at_most});
  std::vector<std::size_t> first;
  for (const std::size_t end : how.group_ends(backward_order(backward), {})) {
    first.insert(first.begin(), tensors - end);
  }
  return first;
}

/// As tf_cnn_benchmarks' extract_ranges answers of the same indices at commit 8fb7907, with a limit
/// of two less: 10, 10, 2, 0 and 1.
TEST(fusion_of_small, packs_as_tf_cnn_benchmarks) {
  std::vector<std::size_t> every(30);
  std::iota(every.begin(), every.end(), std::size_t{0});
  const std::vector<std::size_t> seven(every.begin(), every.begin() + 7);
  EXPECT_EQ(packed(30, every, 12), (ends{0, 12, 24}));                         // 0-11, 12-23, 24-29
  EXPECT_EQ(packed(10, {0, 1, 2, 5, 7, 8}, 12), (ends{0, 3, 4, 5, 6, 7, 9}));  // 0-2, 5, 7-8
  EXPECT_EQ(packed(7, seven, 4), (ends{0, 4}));                                // 0-3, 4-6
  EXPECT_EQ(packed(7, seven, 2), (ends{0, 2, 4, 6}));                          // 0-1, 2-3, 4-5, 6
  EXPECT_EQ(packed(7, seven, 3), (ends{0, 3, 6}));                             // 0-2, 3-5, 6
  EXPECT_EQ(packed(3, {0, 1, 2}, 1), (ends{0, 1, 2}));
}

}  // namespace
}  // namespace tutti
