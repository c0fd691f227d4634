#pragma once

#include <string_view>

#include "tutti/core/compose.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/schedule/by_priority.hpp"

namespace tutti::strategies {

/// Cuts gradients into pieces of a million elements, and all-reduces the most urgent first, within
/// a credit of four million elements. Rank 0 decides the order for all ranks.
struct ByteScheduler {
  static constexpr std::string_view name = "ByteScheduler";
  static constexpr std::string_view after = "Peng et al., \"ByteScheduler\", SOSP 2019";
  static constexpr std::string_view deviations =
      "ByteScheduler tunes its credit during training unless that is turned off; in tutti the "
      "credit is fixed.";
  using strategy = compose<partition::into, schedule::by_priority>;
  static constexpr policy_options<strategy> defaults() {
    return {.partition = {.bytes = 4'000'000},
            .schedule = {.credit = 16'000'000, .rule = schedule::credit_rule::positive}};
  }
};

/// ByteScheduler as Shi et al.'s survey, 2020, ran it: pieces of four million elements within a
/// credit of sixteen million.
struct ByteSchedulerA2A {
  static constexpr std::string_view name = "ByteSchedulerA2A";
  static constexpr std::string_view after =
      "Shi et al., \"A Quantitative Survey of Communication Optimizations\", 2020, "
      "`bytescheduler`";
  static constexpr std::string_view deviations =
      "Runs over tutti's all-reduces; the original runs over Horovod's.";
  using strategy = ByteScheduler::strategy;
  static constexpr policy_options<strategy> defaults() {
    return {.partition = {.bytes = 16'000'000},
            .schedule = {.credit = 64'000'000, .rule = schedule::credit_rule::positive}};
  }
};

}  // namespace tutti::strategies
