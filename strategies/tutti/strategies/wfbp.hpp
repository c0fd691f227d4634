#pragma once

#include <string_view>

#include "tutti/core/compose.hpp"
#include "tutti/fusion/none.hpp"
#include "tutti/schedule/as_ready.hpp"
#include "tutti/schedule/at_most.hpp"

namespace tutti::strategies {

/// One all-reduce a tensor, under the backward pass and one at a time: wait-free back-propagation,
/// Zhang et al., "Poseidon", ATC 2017, on the serial link of Shi, Chu and Li, INFOCOM 2019.
struct WFBP {
  static constexpr std::string_view name = "WFBP";
  using strategy = compose<fusion::none, schedule::at_most>;
};

/// Likewise, each as soon as its gradient exists, whatever else is on its way; ours.
struct WFBPUnlimited {
  static constexpr std::string_view name = "WFBPUnlimited";
  using strategy = compose<fusion::none, schedule::as_ready>;
};

}  // namespace tutti::strategies
