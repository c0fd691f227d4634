// When second halves begin: never before every first half of the step has ended, and then in the
// order in which the next forward pass needs them, a limited number at a time.
#include "tutti/schedule/split_phase.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <optional>
#include <vector>

#include "tutti/base/plan.hpp"

namespace tutti::test {
namespace {

/// Returns chunks with these priorities; the one of priority 7 has no elements.
plan chunks_of(const std::vector<std::uint32_t>& priorities) {
  plan made;
  for (const std::uint32_t each : priorities) {
    made.chunks.push_back({.elements = each == 7 ? 0u : 10u, .priority = each});
  }
  return made;
}

using second_half = schedule::split_phase::second_half;

TEST(SplitPhase, WaitsForAllAndGoesInForwardOrder) {
  const plan made = chunks_of({3, 7, 1, 1, 0, 2});
  for (const std::size_t window : {0U, 1U, 2U, 9U}) {
    second_half machine(made, {.gathers_at_once = window});
    for (int step = 0; step < 3; ++step) {
      for (int half = 0; half < 5; ++half) {
        EXPECT_EQ(machine.next(), std::nullopt) << "step " << step << ", after " << half;
        machine.half_done();
      }
      std::vector<std::uint32_t> begun;
      std::size_t under_way = 0;
      while (begun.size() < 5) {
        while (const auto next = machine.next()) {
          begun.push_back(*next);
          ++under_way;
        }
        EXPECT_EQ(under_way, window == 0 ? 5 : std::min(window, 5 - (begun.size() - under_way)));
        machine.done();
        --under_way;
      }
      while (under_way-- > 0) {
        machine.done();
      }
      EXPECT_EQ(begun, (std::vector<std::uint32_t>{4, 2, 3, 5, 0}));
    }
  }
}

}  // namespace
}  // namespace tutti::test
