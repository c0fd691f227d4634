// The rules of merge_gradients, compared with programmes written from the papers' recurrences. One
// file, because greedy, exact and sparse merging are run on the same random jobs.
#include "tutti/fusion/merge_gradients.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/core/plan_maker.hpp"
#include "tutti/fusion/sparse_merge.hpp"
#include "tutti/partition/none.hpp"

namespace tutti {
namespace {

using ends = std::vector<std::size_t>;

/// Returns the ends of groups. Layers are numbered from 1 on in forward order, and a layer that is
/// not merged into the one before it ends a group.
template <class Flags>
ends ends_of(const Flags& merged) {
  ends result;
  const std::size_t layers = merged.size() - 2;  // without one flag at each end
  for (std::size_t l = layers; l >= 1; --l) {
    if (!merged[l]) {
      result.push_back(layers - l + 1);
    }
  }
  return result;
}
using fusion::merge_gradients;

const merge_gradients exact({.rule = fusion::rule::exact});
const merge_gradients greedy({.rule = fusion::rule::greedy});
const merge_gradients greedy_8192({.rule = fusion::rule::greedy_8192});

/// A model with everything that the rules look at; vectors are in forward order.
struct job {
  std::vector<std::size_t> elements;
  profile known;

  std::vector<tensor_facts> backward() const {
    std::vector<tensor_facts> facts;
    for (std::size_t i = elements.size(); i-- > 0;) {
      facts.push_back({tensor_id{static_cast<std::uint32_t>(i)}, elements[i]});
    }
    return facts;
  }
};

job random_job(std::mt19937& random, std::size_t layers) {
  const auto uniform = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  job made;
  const double beta = uniform(1e-10, 5e-9);
  for (std::size_t i = 0; i < layers; ++i) {
    made.elements.push_back(random() % 5 == 0 ? random() % 100 : random() % 2'000'000);
    made.known.backward.push_back(random() % 6 == 0 ? 0 : uniform(0, 4e-3));
  }
  made.known.message = message_cost(uniform(0, 3e-3), beta);
  // Floats, halves, a thousandth of the elements with their places, one bit each with a scale.
  constexpr std::array<payload_bytes::length, 4> lengths{
      nullptr, [](const void*, std::size_t n) { return 2 * n; },
      [](const void*, std::size_t n) {
        return n == 0 ? 0 : 8 * std::max<std::size_t>(n / 1000, 1);
      },
      [](const void*, std::size_t n) { return 4 + (n + 7) / 8; }};
  made.known.payload = {nullptr, lengths[random() % lengths.size()]};
  return made;
}

/// The published rule, literally: arrays over layers 1 to L, all recomputed after a merge. A
/// message of fewer than `least` elements is merged at any cost.
ends published(const job& each, std::size_t least = 0) {
  const std::size_t layers = each.elements.size();
  const double a = each.known.message.startup();
  std::vector<double> tb(layers + 2), tau_b(layers + 2), ready(layers + 2);
  std::vector<double> tc(layers + 2), tau_c(layers + 2);
  std::vector<std::size_t> p(layers + 2);
  std::vector<bool> merged(layers + 2);
  for (std::size_t l = 1; l <= layers; ++l) {
    tb[l] = each.known.backward[l - 1];
    p[l] = each.elements[l - 1];
    tc[l] = each.known.message(each.known.payload(p[l]));
  }
  for (std::size_t l = layers; l >= 1; --l) {
    tau_b[l] = l == layers ? 0 : tau_b[l + 1] + tb[l + 1];
    ready[l] = tau_b[l] + tb[l];
  }
  const auto recompute = [&] {
    for (std::size_t l = layers; l >= 1; --l) {
      tau_c[l] = l == layers ? ready[l] : std::max(tau_c[l + 1] + tc[l + 1], ready[l]);
    }
  };
  recompute();
  for (std::size_t l = layers; l >= 2; --l) {
    if (ready[l - 1] < tau_c[l] + a || p[l] < least) {
      p[l - 1] += p[l];
      p[l] = 0;
      tc[l] = 0;
      tc[l - 1] = each.known.message(each.known.payload(p[l - 1]));
      merged[l] = true;
      recompute();
    }
  }
  return ends_of(merged);
}

/// Returns when the last message of a grouping ends.
seconds finish(const job& each, const ends& groups) {
  const auto facts = each.backward();
  seconds ready = 0;
  seconds link = 0;
  std::size_t i = 0;
  for (const std::size_t end : groups) {
    std::size_t elements = 0;
    for (; i < end; ++i) {
      ready += each.known.backward[index(facts[i].id)];
      elements += facts[i].elements;
    }
    link = std::max(link, ready) + each.known.message(each.known.payload(elements));
  }
  return link;
}

seconds best_of_all_groupings(const job& each) {
  const std::size_t layers = each.elements.size();
  seconds best = std::numeric_limits<seconds>::infinity();
  for (std::size_t cuts = 0; cuts < std::size_t{1} << (layers - 1); ++cuts) {
    ends groups;
    for (std::size_t i = 0; i + 1 < layers; ++i) {
      if (cuts >> i & 1) {
        groups.push_back(i + 1);
      }
    }
    groups.push_back(layers);
    best = std::min(best, finish(each, groups));
  }
  return best;
}

TEST(merge_gradients, greedy_is_the_published_rule) {
  std::mt19937 random(1);
  std::size_t some_merged = 0;
  for (int round = 0; round < 10'000; ++round) {
    const job each = random_job(random, random() % 30);
    const ends groups = greedy.group_ends(each.backward(), each.known);
    ASSERT_EQ(groups, published(each)) << "profile " << round;
    some_merged += groups.size() > 1 && groups.size() < each.elements.size();
  }
  EXPECT_GT(some_merged, 2'000u) << "the profiles do not exercise the rule";
}

TEST(merge_gradients, greedy_8192_is_the_rule_that_sends_nothing_small) {
  std::mt19937 random(5);
  std::size_t otherwise = 0;
  for (int round = 0; round < 3'000; ++round) {
    const job each = random_job(random, random() % 30);
    const ends groups = greedy_8192.group_ends(each.backward(), each.known);
    ASSERT_EQ(groups, published(each, 8192)) << "profile " << round;
    otherwise += groups != greedy.group_ends(each.backward(), each.known);
  }
  EXPECT_GT(otherwise, 300u) << "the profiles do not tell the rules apart";
}

/// A bucket of 8191 elements waits for the next tensor, which is late; one of 8192 does not.
TEST(merge_gradients, greedy_8192_holds_fewer) {
  for (const std::size_t first : {8191U, 8192U}) {
    job each;
    each.elements = {10, first};
    each.known.backward = {1, 1e-3};
    each.known.message = message_cost(1e-6, 1e-9);
    EXPECT_EQ(greedy.group_ends(each.backward(), each.known), (ends{1, 2}));
    EXPECT_EQ(greedy_8192.group_ends(each.backward(), each.known),
              first < 8192 ? (ends{2}) : (ends{1, 2}));
  }
}

/// An all-reduce of M bytes among n ranks takes 2na + 2(n-1)Mb/n.
TEST(merge_gradients, a_rings_messages_make_an_all_reduce) {
  std::mt19937 random(6);
  std::size_t otherwise = 0;
  for (int round = 0; round < 1'000; ++round) {
    job each = random_job(random, random() % 30);
    const std::size_t n = 2 + random() % 31;
    const double a = 5e-5;
    const double b = 1e-9;
    each.known.message = {};
    const merge_gradients by_ring(
        {.rule = fusion::rule::greedy, .startup = a, .seconds_per_byte = b, .ring = n});
    const ends groups = by_ring.group_ends(each.backward(), each.known);
    const auto ranks = static_cast<double>(n);
    each.known.message = message_cost(2 * ranks * a, 2 * (ranks - 1) / ranks * b);
    ASSERT_EQ(groups, published(each)) << "profile " << round;
    each.known.message = message_cost(a, b);
    otherwise += groups != published(each);
  }
  EXPECT_GT(otherwise, 500u);
}

TEST(merge_gradients, exact_is_never_worse_than_greedy) {
  std::mt19937 random(2);
  int better = 0;
  for (int round = 0; round < 3'000; ++round) {
    const job each = random_job(random, 1 + random() % 30);
    const seconds ours = finish(each, exact.group_ends(each.backward(), each.known));
    const seconds theirs = finish(each, greedy.group_ends(each.backward(), each.known));
    ASSERT_LE(ours, theirs * (1 + 1e-12)) << "profile " << round;
    const seconds held = finish(each, greedy_8192.group_ends(each.backward(), each.known));
    ASSERT_LE(ours, held * (1 + 1e-12)) << "profile " << round;
    better += ours < theirs * 0.999;
  }
  EXPECT_GT(better, 300) << "greedy should lose somewhere";
}

TEST(merge_gradients, exact_equals_exhaustive_search) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    const std::size_t layers = round < 5 ? 14 : 1 + random() % 10;
    const job each = random_job(random, layers);
    const seconds ours = finish(each, exact.group_ends(each.backward(), each.known));
    const seconds best = best_of_all_groupings(each);
    ASSERT_NEAR(ours, best, 1e-12 * best) << layers << " layers, profile " << round;
  }
}

TEST(merge_gradients, exact_holds_for_any_cost_table) {
  std::mt19937 random(4);
  for (int round = 0; round < 200; ++round) {
    job each = random_job(random, 1 + random() % 9);
    each.known.message =
        message_cost({{0, 1e-3}, {100'000, 1.1e-3}, {200'000, 6e-3}, {1 << 20, 7e-3}});
    const seconds ours = finish(each, exact.group_ends(each.backward(), each.known));
    const seconds best = best_of_all_groupings(each);
    ASSERT_NEAR(ours, best, 1e-12 * best) << "profile " << round;
  }
}

/// The first two points lie on a line that meets 0 at 500 bytes. If shorter messages took less than
/// no time, each that is sent alone would seem to save some.
TEST(merge_gradients, no_message_takes_less_than_no_time) {
  job each;
  each.elements = {1, 1, 1};
  each.known.backward = {0, 0, 0};
  each.known.message = message_cost({{1000, 1e-3}, {2000, 3e-3}, {3000, 4e-3}});
  EXPECT_EQ(each.known.message.startup(), 0);
  EXPECT_EQ(exact.group_ends(each.backward(), each.known), (ends{3}));
}

TEST(merge_gradients, greedy_loses_on_three_equal_tensors) {
  job three;
  three.elements = {1, 1, 1};
  three.known.backward = {2, 1, 1};  // ready at 1, 2 and 4
  three.known.message = message_cost(2, 0.25);
  EXPECT_EQ(greedy.group_ends(three.backward(), three.known), (ends{2, 3}));
  EXPECT_EQ(exact.group_ends(three.backward(), three.known), (ends{1, 3}));
  EXPECT_DOUBLE_EQ(finish(three, {2, 3}), 9);
  EXPECT_DOUBLE_EQ(finish(three, {1, 3}), 8);
}

TEST(merge_gradients, takes_the_options_where_the_profile_is_silent) {
  job each;
  each.elements = {1000, 1000, 1000};
  job spelt_out = each;
  spelt_out.known.backward = {2, 2, 2};
  for (const double startup : {1e-9, 3.0, 100.0}) {
    spelt_out.known.message = message_cost(startup, 1e-3);
    const merge_gradients from_options(
        {.startup = startup, .seconds_per_byte = 1e-3, .seconds_per_element = 2e-3});
    EXPECT_EQ(from_options.group_ends(each.backward(), {}),
              exact.group_ends(spelt_out.backward(), spelt_out.known));
    profile total_only{.backward_total = 6, .message = spelt_out.known.message};
    EXPECT_EQ(exact.group_ends(each.backward(), total_only),
              exact.group_ends(spelt_out.backward(), spelt_out.known));
  }
}

/// OMGS-SGD's rule, literally: arrays over layers 1 to L, all recomputed after a merge.
ends published_sparse(const job& each, const message_cost& cost, double s) {
  const std::size_t layers = each.elements.size();
  std::vector<double> tb(layers + 2), taub(layers + 2), taus(layers + 2), ts(layers + 2);
  std::vector<double> tc(layers + 2), tauc(layers + 2);
  std::vector<std::size_t> p(layers + 2);
  std::vector<bool> merged(layers + 2);
  const auto selecting = [&](std::size_t x) {
    return x == 0 ? 0.0 : s * static_cast<double>(x) * std::log2(static_cast<double>(x));
  };
  const auto gathering = [&](std::size_t x) { return x == 0 ? 0.0 : cost(each.known.payload(x)); };
  for (std::size_t l = 1; l <= layers; ++l) {
    tb[l] = each.known.backward[l - 1];
    p[l] = each.elements[l - 1];
  }
  const auto recompute = [&] {
    for (std::size_t l = layers; l >= 1; --l) {
      ts[l] = selecting(p[l]);
      tc[l] = gathering(p[l]);
      taub[l] = l == layers ? 0 : taus[l + 1] + ts[l + 1];
      taus[l] = taub[l] + tb[l];
      tauc[l] = l == layers ? taus[l] + ts[l] : std::max(tauc[l + 1] + tc[l + 1], taus[l] + ts[l]);
    }
  };
  recompute();
  for (std::size_t l = layers; l >= 2; --l) {
    const double tw = tb[l - 1] + selecting(p[l] + p[l - 1]) - selecting(p[l]) -
                      selecting(p[l - 1]) - (tauc[l] - (taus[l] + ts[l]));
    const double tsave = gathering(p[l]) + gathering(p[l - 1]) - gathering(p[l] + p[l - 1]);
    if (tw < tsave || (tw == 0 && tsave == 0)) {  // one of them is empty
      tb[l - 1] += tb[l];
      tb[l] = 0;
      p[l - 1] += p[l];
      p[l] = 0;
      merged[l] = true;
      recompute();
    }
  }
  return ends_of(merged);
}

TEST(sparse_merge, is_the_published_rule) {
  std::mt19937 random(7);
  std::size_t some_merged = 0;
  std::size_t otherwise = 0;
  for (int round = 0; round < 5'000; ++round) {
    job each = random_job(random, random() % 30);
    const double s = round % 2 == 0 ? 2.18896957e-10 : 4.997e-10;
    const fusion::sparse_merge merge({.seconds_per_comparison = s});
    const ends groups = merge.group_ends(each.backward(), each.known);
    ASSERT_EQ(groups, published_sparse(each, each.known.message, s)) << "profile " << round;
    some_merged += groups.size() > 1 && groups.size() < each.elements.size();
    otherwise += groups != greedy.group_ends(each.backward(), each.known);
  }
  EXPECT_GT(some_merged, 1'000u) << "the profiles do not exercise the rule";
  EXPECT_GT(otherwise, 1'000u) << "the profiles do not tell the rules apart";
}

/// The vectors were made on 25 November 2026 by `_generate_groups_mgwfbp` of HKBU-HPML/MG-WFBP,
/// commit 5b8ad54. It was run on sizes and backward times in forward order, with a start-up and a
/// time for each byte in place of those that it measures. Times are whole multiples of 2^-20 s and
/// 2^-30 s, so that nothing is rounded. The vectors list the length of each group.
TEST(merge_gradients, greedy_is_what_its_program_makes) {
  struct vector_of_the_program {
    std::vector<std::size_t> elements;
    std::vector<double> backward;
    double startup;
    double byte;
    std::vector<std::size_t> lengths;
  };
  const std::vector<vector_of_the_program> all{
      {{65536, 2400000, 2400000}, {0, 100, 0}, 512, 4, {3}},
      {{300000, 8191, 2400000, 64, 1, 8191, 1, 2400000},
       {400, 400, 1000, 0, 3000, 400, 100, 3000},
       256,
       1,
       {2, 6}},
      {{1, 1, 1, 300000, 65536, 1, 8191, 300000},
       {50, 400, 3000, 0, 1000, 50, 400, 400},
       2048,
       1,
       {5, 3}},
      {{64, 300000, 64, 2400000, 8191, 1000, 1, 8191},
       {1000, 3000, 0, 50, 3000, 3000, 100, 0},
       2048,
       4,
       {2, 1, 3, 2}},
      {{300000, 65536, 8191, 65536, 2400000, 300000, 64, 1000, 1000, 65536},
       {400, 1000, 400, 1000, 0, 400, 50, 3000, 400, 400},
       2048,
       1,
       {2, 8}},
      {{65536, 300000, 2400000, 300000, 300000, 1000, 1, 8191},
       {3000, 1000, 0, 50, 1000, 400, 100, 400},
       2048,
       1,
       {7, 1}},
      {{65536, 1000, 2400000, 65536, 1000, 8191, 1000, 300000},
       {1000, 1000, 3000, 0, 400, 3000, 1000, 50},
       2048,
       1,
       {2, 3, 3}},
      {{2400000}, {100}, 256, 4, {1}},
      {{1, 64, 64, 1000, 65536, 64, 300000, 1000},
       {3000, 3000, 100, 400, 3000, 100, 400, 400},
       256,
       1,
       {1, 2, 1, 2, 1, 1}},
      {{8191, 1000, 8191, 2400000, 64, 1000, 1, 1000},
       {3000, 1000, 50, 1000, 400, 0, 50, 0},
       512,
       1,
       {4, 2, 2}},
      {{2400000, 64, 300000, 2400000, 300000, 65536, 8191, 64},
       {1000, 3000, 0, 400, 3000, 1000, 100, 3000},
       2048,
       4,
       {3, 3, 2}},
      {{1, 300000, 1000, 64, 64, 1, 1000, 1, 2400000, 1},
       {100, 100, 3000, 50, 400, 1000, 100, 50, 0, 1000},
       256,
       1,
       {4, 6}},
  };
  for (const vector_of_the_program& its : all) {
    job each;
    each.elements = its.elements;
    for (const double time : its.backward) {
      each.known.backward.push_back(std::ldexp(time, -20));
    }
    each.known.message = message_cost(std::ldexp(its.startup, -20), std::ldexp(its.byte, -30));
    ends expected;
    std::size_t end = 0;
    for (const std::size_t length : its.lengths) {
      expected.push_back(end += length);
    }
    EXPECT_EQ(greedy.group_ends(each.backward(), each.known), expected) << &its - all.data();
  }
}

/// Merging waits a quarter of a second and saves as much.
TEST(sparse_merge, keeps_apart_what_costs_as_much_as_it_saves) {
  const fusion::sparse_merge merge({.seconds_per_comparison = 0});
  job each;
  each.elements = {10, 10};
  each.known.message = message_cost(0.25, 0);
  each.known.backward = {0.25, 1};
  EXPECT_EQ(merge.group_ends(each.backward(), each.known), (ends{1, 2}));
  each.known.backward = {0.125, 1};
  EXPECT_EQ(merge.group_ends(each.backward(), each.known), (ends{2}));
  each.elements = {0, 10};  // it saves nothing, so it merges only without waiting
  EXPECT_EQ(merge.group_ends(each.backward(), each.known), (ends{1, 2}));
  each.known.backward = {0, 1};
  EXPECT_EQ(merge.group_ends(each.backward(), each.known), (ends{2}));
}

/// The vectors were made on 24 November 2026 by `_generate_groups_mgs` of HKBU-HPML/OMGS-SGD,
/// commit ac10b98, run for 4 ranks and a density of 0.001. Sizes are whole thousands and backward
/// times are in microseconds, both in forward order. The vectors list the length of each group. The
/// program never merges the two tensors nearest the output by its rule, and yet sends them
/// together. Here the second is so late that the rule keeps them apart.
TEST(sparse_merge, is_what_its_program_makes) {
  struct vector_of_the_program {
    std::vector<std::size_t> elements;
    std::vector<double> microseconds;
    std::vector<std::size_t> lengths;
  };
  const std::vector<vector_of_the_program> all{
      {{4000, 900000, 900000, 4000, 30000, 900000, 200000, 2400000},
       {9000, 0, 9000, 0, 3000, 700, 20000, 100},
       {5, 2, 1}},
      {{4000, 2400000, 200000, 900000, 900000, 200000, 200000, 2400000},
       {100, 100, 100, 9000, 3000, 0, 20000, 100},
       {4, 4}},
      {{900000, 1000, 30000, 1000, 30000, 200000, 900000, 2400000},
       {3000, 3000, 3000, 9000, 3000, 100, 20000, 0},
       {4, 4}},
      {{1000, 4000, 200000, 4000, 30000, 2400000, 200000, 2400000},
       {700, 3000, 9000, 3000, 9000, 700, 20000, 9000},
       {3, 2, 3}},
      {{200000, 900000, 4000, 30000, 2400000, 1000, 30000, 900000},
       {100, 700, 9000, 9000, 9000, 0, 20000, 9000},
       {3, 1, 1, 3}},
      {{30000, 30000, 1000, 1000, 200000, 2400000, 200000, 1000},
       {700, 0, 3000, 100, 0, 700, 20000, 3000},
       {8}},
      {{1000, 1000, 900000, 900000, 1000, 200000, 2400000, 900000},
       {700, 9000, 700, 9000, 100, 0, 20000, 0},
       {4, 2, 2}},
      {{1000, 1000, 900000, 900000, 1000, 4000, 200000, 30000},
       {9000, 700, 100, 0, 700, 700, 20000, 100},
       {7, 1}},
  };
  for (const vector_of_the_program& its : all) {
    job each;
    each.elements = its.elements;
    for (const double time : its.microseconds) {
      each.known.backward.push_back(1e-6 * time);
    }
    each.known.payload = {nullptr, [](const void*, std::size_t n) { return 8 * (n / 1000); }};
    ends expected{1};
    std::size_t end = 0;
    for (const std::size_t length : its.lengths) {
      expected.push_back(end += length);
    }
    EXPECT_EQ(fusion::sparse_merge().group_ends(each.backward(), each.known), expected);
  }
}

/// Indices and values of x elements each take a + 4nbx among n ranks.
TEST(sparse_merge, takes_the_options_where_the_profile_is_silent) {
  std::mt19937 random(8);
  std::size_t otherwise = 0;
  for (int round = 0; round < 500; ++round) {
    job each = random_job(random, random() % 30);
    each.known.message = {};
    constexpr double s = 2.18896957e-10;
    const std::size_t n = random() % 3 == 0 ? 0 : 2 + random() % 15;
    const fusion::sparse_merge merge(
        {.startup = 1e-3, .seconds_per_byte = 2e-9, .gather = n, .seconds_per_comparison = s});
    const ends groups = merge.group_ends(each.backward(), each.known);
    const double ranks = static_cast<double>(n);
    ASSERT_EQ(groups,
              published_sparse(
                  each, n == 0 ? message_cost(1e-3, 2e-9) : message_cost(2e-3, ranks * 2e-9), s))
        << "profile " << round;
    otherwise += groups != fusion::sparse_merge().group_ends(each.backward(), each.known);
  }
  EXPECT_GT(otherwise, 100u);
  job halves;  // a thousand elements a second, whatever their type
  halves.elements = {1000, 1000};
  const fusion::sparse_merge slow({.seconds_per_element = 1e-3});
  EXPECT_EQ(slow.group_ends(halves.backward(), {}), (ends{1, 2}));
  EXPECT_EQ(fusion::sparse_merge().group_ends(halves.backward(), {}), (ends{2}));
}

TEST(merge_gradients, refuses_negative_times) {
  EXPECT_THROW(fusion::merge_gradients({.startup = -1}), usage_error);
  EXPECT_THROW(fusion::merge_gradients({.seconds_per_byte = -1}), usage_error);
  EXPECT_THROW(fusion::sparse_merge({.startup = -1}), usage_error);
  EXPECT_THROW(fusion::sparse_merge({.seconds_per_comparison = -1}), usage_error);
}

/// The backward times of tensors that are not in the group count in between.
TEST(merge_gradients, counts_the_time_of_tensors_that_it_is_not_given) {
  const std::vector<tensor_facts> given{{tensor_id(5), 1}, {tensor_id(2), 1}, {tensor_id(1), 1}};
  const profile known{.backward = {64, 32, 16, 8, 4, 2, 1}};
  EXPECT_EQ(ready_times(given, known, 0), (std::vector<seconds>{3, 31, 63}));
}

/// Three small tensors of a class of their own are ready at 10, 1020 and 2030 ms of a backward
/// pass.
TEST(merge_gradients, spreads_the_whole_models_time_over_all_classes) {
  std::vector<tensor> forward(5);
  std::vector<seconds> times;
  for (tensor& each : forward) {
    each.elements = times.size() % 2 == 0 ? 10 : 1000;
    times.push_back(1e-3 * static_cast<double>(each.elements));
  }
  const auto small = [](const tensor_facts& each) { return tensor_class{each.elements == 10}; };
  const auto made = [&](std::vector<seconds> backward, seconds total) {
    const profile known{
        .backward = std::move(backward), .backward_total = total, .message = {0.8, 0}};
    return make_plan(
               forward, greedy, partition::none(), known, [](plan&) {}, {}, small)
        .hash;
  };
  EXPECT_EQ(made({}, 2.03), made(times, 0));
}

}  // namespace
}  // namespace tutti
