#pragma once

#include <string_view>

#include "tutti/core/compose.hpp"
#include "tutti/fusion/merge_gradients.hpp"
#include "tutti/schedule/at_most.hpp"

namespace tutti::strategies {

/// Merges tensors, and has two all-reduces on their way at once, because one alone does not fill
/// the link. If `schedule.exchanges` is 0, as many are on their way at once as pay.
struct ASCWFBP {
  static constexpr std::string_view name = "ASCWFBP";
  static constexpr std::string_view after =
      "Shi, Chu and Li, \"Exploiting Simultaneous Communications to Accelerate Data Parallel "
      "Distributed Deep Learning\", INFOCOM 2021";
  static constexpr std::string_view deviations =
      "Follows the numbers in the paper's plots, because its text and program were not available; "
      "tensors are merged by MG-WFBP's published rule.";
  using strategy = compose<fusion::merge_gradients, schedule::at_most>;
  static constexpr policy_options<strategy> defaults() {
    return {.fusion = {.rule = fusion::rule::greedy}, .schedule = {.exchanges = 2}};
  }
};

}  // namespace tutti::strategies
