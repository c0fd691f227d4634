#pragma once

#include <string_view>

#include "tutti/core/compose.hpp"
#include "tutti/fusion/merge_gradients.hpp"
#include "tutti/schedule/as_ready.hpp"
#include "tutti/schedule/at_most.hpp"

namespace tutti::strategies {

/// Merges tensors where waiting for the next one costs less than another start-up, by the published
/// rule, and sends one message at a time.
struct MGWFBP {
  static constexpr std::string_view name = "MGWFBP";
  static constexpr std::string_view after = "Shi, Chu and Li, \"MG-WFBP\", INFOCOM 2019";
  static constexpr std::string_view deviations =
      "The original's program first times the backward pass and messages; in tutti the job's "
      "profile or options give these times.";
  using strategy = compose<fusion::merge_gradients, schedule::at_most>;
  static constexpr policy_options<strategy> defaults() {
    return {.fusion = {.rule = fusion::rule::greedy}};
  }
};

/// MGWFBP as in the program of Shi et al.'s survey, which also merges every tensor of fewer than
/// 8192 elements.
struct MGWFBP8192 {
  static constexpr std::string_view name = "MGWFBP8192";
  static constexpr std::string_view after =
      "Shi et al., \"A Quantitative Survey of Communication Optimizations\", 2020, `mgwfbp`";
  static constexpr std::string_view deviations = "The same as MGWFBP's.";
  using strategy = MGWFBP::strategy;
  static constexpr policy_options<strategy> defaults() {
    return {.fusion = {.rule = fusion::rule::greedy_8192}};
  }
};

/// Merges tensors by an exact optimisation of the paper's cost model, which is tutti's own, and
/// sends each group whatever else is on its way.
struct MGWFBPExact {
  static constexpr std::string_view name = "MGWFBPExact";
  static constexpr std::string_view after = "tutti's own";
  static constexpr std::string_view deviations = "";
  using strategy = compose<fusion::merge_gradients, schedule::as_ready>;
};

}  // namespace tutti::strategies
