#pragma once

#include <string_view>

#include "tutti/core/compose.hpp"
#include "tutti/fusion/none.hpp"
#include "tutti/schedule/as_ready.hpp"
#include "tutti/schedule/at_most.hpp"

namespace tutti::strategies {

/// Wait-free back-propagation: all-reduces each tensor during the backward pass, one at a time.
struct WFBP {
  static constexpr std::string_view name = "WFBP";
  static constexpr std::string_view after =
      "Zhang et al., \"Poseidon\", ATC 2017; one at a time: Shi, Chu and Li, INFOCOM 2019";
  static constexpr std::string_view deviations =
      "Poseidon sends to servers, and dense layers as factors; this is one all-reduce per tensor, "
      "as used by papers that compare with it.";
  using strategy = compose<fusion::none, schedule::at_most>;
};

/// WFBP, but each tensor as soon as its gradient exists, whatever else is on its way. It is
/// tutti's own.
struct WFBPUnlimited {
  static constexpr std::string_view name = "WFBPUnlimited";
  static constexpr std::string_view after = "tutti's own";
  static constexpr std::string_view deviations = "";
  using strategy = compose<fusion::none, schedule::as_ready>;
};

}  // namespace tutti::strategies
