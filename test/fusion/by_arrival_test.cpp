// Groups in the order of arrival, compared with PyTorch's own buckets and with a plain loop that
// fills lists.
#include "tutti/fusion/by_arrival.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "tutti/strategies/ddp.hpp"

namespace tutti {
namespace {

using numbers = std::vector<std::uint32_t>;
using launches = std::vector<numbers>;
using fusion::rebuild;

/// Tensors in forward order, with the elements and the kind of each. Chunks are numbered from the
/// last tensor on.
struct model {
  std::vector<std::size_t> elements;
  std::vector<std::uint32_t> kinds;

  plan planned() const {
    plan made;
    for (std::size_t i = elements.size(); i-- > 0;) {
      chunk piece{};
      piece.elements = elements[i];
      piece.kind = kinds[i];
      made.chunks.push_back(piece);
    }
    return made;
  }
  std::uint32_t chunk_of(std::uint32_t tensor) const {
    return static_cast<std::uint32_t>(elements.size() - 1 - tensor);
  }
};

/// Runs a step in which tensors arrive in that order, and returns its launches as sorted lists of
/// tensors.
launches step_of(fusion::by_arrival::state& gathering, const model& its, const numbers& arrival) {
  launches all;
  for (const std::uint32_t tensor : arrival) {
    gathering.stage(its.chunk_of(tensor));
    for (auto next = gathering.next(); !next.empty(); next = gathering.next()) {
      EXPECT_TRUE(std::is_sorted(next.begin(), next.end()));
      numbers tensors;
      for (const std::uint32_t chunk : next) {
        tensors.insert(tensors.begin(), its.chunk_of(chunk));  // chunk_of is its own inverse
      }
      all.push_back(tensors);
    }
  }
  return all;
}

/// The vectors were made on 24 November 2026 by DistributedDataParallel of torch 1.13.1 over gloo,
/// with two processes, bucket_cap_mb 25, and a communication hook that records each step's buckets
/// as they are launched. Tensors have float32 elements or, where the kind is 1, twice as many of
/// float16. Rank 0's gradients came in `arrival`, rank 1's in forward order. Both ranks launched
/// what is written here, with its tensors sorted.
struct vector_of_torch {
  model its;
  rebuild when;
  launches arrival;  ///< of each step; the last one's for all later steps
  std::vector<launches> steps;
};
std::vector<vector_of_torch> vectors() {
  const model one_type{{300'000, 2'500'000, 8, 5'000'000, 25'000'000, 2'500'000},
                       {0, 0, 0, 0, 0, 0}};
  const model two_types{{300'000, 2'500'000, 8, 5'000'000, 6'250'000, 2'500'000, 1000, 200'000},
                        {0, 1, 1, 0, 1, 0, 0, 1}};
  const launches whole{{0, 1, 2, 3, 4, 5}};
  return {
      {one_type,
       rebuild::after_first_step,
       {{4, 5, 3, 2, 0, 1}},
       {whole, {{4}, {3, 5}, {0, 1, 2}}, {{4}, {3, 5}, {0, 1, 2}}}},
      {one_type,
       rebuild::after_first_step,
       {{0, 1, 2, 3, 4, 5}, {5, 4, 3, 2, 1, 0}},
       {whole, {{0}, {1, 2, 3}, {4}, {5}}, {{0}, {1, 2, 3}, {4}, {5}}}},
      {one_type,
       rebuild::after_second_step,
       {{4, 5, 3, 2, 0, 1}, {0, 1, 2, 3, 4, 5}},
       {whole, whole, {{0}, {1, 2, 3}, {4}, {5}}, {{0}, {1, 2, 3}, {4}, {5}}}},
      {one_type,
       rebuild::never,
       {{4, 5, 3, 2, 0, 1}},
       {{{5}, {4}, {1, 2, 3}, {0}}, {{5}, {4}, {1, 2, 3}, {0}}}},
      {two_types,
       rebuild::after_first_step,
       {{7, 6, 4, 5, 3, 2, 0, 1}},
       {{{1, 2, 4, 7}, {0, 3, 5, 6}},
        {{4, 7}, {5, 6}, {0, 3}, {1, 2}},
        {{4, 7}, {5, 6}, {0, 3}, {1, 2}}}},
      {two_types,
       rebuild::never,
       {{7, 6, 4, 5, 3, 2, 0, 1}},
       {{{6}, {3, 5}, {2, 4, 7}, {1}, {0}}, {{6}, {3, 5}, {2, 4, 7}, {1}, {0}}}},
  };
}

TEST(fusion_by_arrival, makes_the_buckets_of_torch) {
  for (const vector_of_torch& each : vectors()) {
    auto set = strategies::DDP::defaults().fusion;
    set.rebuild = each.when;
    const plan made = each.its.planned();
    fusion::by_arrival::state gathering(made, set);
    for (std::size_t step = 0; step < each.steps.size(); ++step) {
      const auto& arrival = each.arrival[std::min(step, each.arrival.size() - 1)];
      EXPECT_EQ(step_of(gathering, each.its, arrival), each.steps[step]) << "step " << step;
    }
    EXPECT_EQ(gathering.unsettled_steps() + 1,
              each.when == rebuild::never ? 1U : each.steps.size() - 1);
  }
}

/// Fills one list for each kind. Lists that are not full at the end go last, in the order of their
/// last tensors.
launches filled(const model& its, const numbers& order, std::size_t first, std::size_t others) {
  std::map<std::uint32_t, numbers> open;
  std::map<std::uint32_t, std::size_t> closed;
  std::map<std::uint32_t, std::size_t> held;
  launches all;
  for (const std::uint32_t tensor : order) {
    const std::uint32_t kind = its.kinds[tensor];
    open[kind].push_back(tensor);
    held[kind] += 4 * its.elements[tensor];
    if (held[kind] >= (closed[kind] == 0 && first != 0 ? first : others)) {
      all.push_back(std::exchange(open[kind], {}));
      held[kind] = 0;
      ++closed[kind];
    }
  }
  for (auto at = order.begin(); at != order.end(); ++at) {
    numbers& rest = open[its.kinds[*at]];
    if (!rest.empty() && rest.back() == *at) {
      all.push_back(std::exchange(rest, {}));
    }
  }
  for (numbers& each : all) {
    std::sort(each.begin(), each.end());
  }
  return all;
}

TEST(fusion_by_arrival, fills_lists_in_the_order_that_it_has_learned) {
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    model its;
    numbers forward;
    for (std::uint32_t i = 0, n = static_cast<std::uint32_t>(random() % 14); i < n; ++i) {
      its.elements.push_back(random() % 5 == 0 ? 0 : random() % 40);
      its.kinds.push_back(static_cast<std::uint32_t>(random() % 3));
      forward.push_back(i);
    }
    const fusion::by_arrival::options set{.bytes = random() % 6 == 0 ? 0 : random() % 200,
                                          .first_bytes = random() % 3 * (random() % 60),
                                          .rebuild = static_cast<rebuild>(random() % 3)};
    const plan made = its.planned();
    fusion::by_arrival::state gathering(made, set);
    const std::size_t kept = gathering.unsettled_steps();
    // Until groups are rebuilt, lists have no limit; if they never are, these limits apply. The
    // list farthest from the input goes first.
    launches expected = kept == 0 ? filled(its, forward, set.first_bytes, set.bytes)
                                  : filled(its, forward, SIZE_MAX, SIZE_MAX);
    std::sort(expected.begin(), expected.end(), std::greater());
    for (std::size_t step = 0; step < 5; ++step) {
      numbers arrival = forward;
      std::shuffle(arrival.begin(), arrival.end(), random);
      ASSERT_EQ(step_of(gathering, its, arrival), expected) << "round " << round << " " << step;
      if (step + 1 == kept) {
        expected = filled(its, arrival, set.first_bytes, set.bytes);
      }
    }
  }
}

/// Chunks of a second step arrive before the first step's have been launched, and each counts for
/// its own step.
TEST(fusion_by_arrival, steps_may_overlap) {
  const model its{{10, 10, 10}, {0, 0, 1}};
  const plan made = its.planned();
  fusion::by_arrival::state gathering(
      made, {.bytes = 40, .first_bytes = 0, .rebuild = rebuild::after_second_step});
  EXPECT_EQ(step_of(gathering, its, {1, 0}), launches{}) << "the other kind is to go first";
  EXPECT_EQ(step_of(gathering, its, {1}), launches{});  // of the second step
  EXPECT_EQ(step_of(gathering, its, {2}), (launches{{2}, {0, 1}}));
  EXPECT_EQ(step_of(gathering, its, {2, 0}), (launches{{2}, {0, 1}}));
  EXPECT_EQ(step_of(gathering, its, {0, 2, 1}), (launches{{1}, {2}, {0}})) << "1, 2, 0";
}

}  // namespace
}  // namespace tutti
