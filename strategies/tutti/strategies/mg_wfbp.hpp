#pragma once

#include <string_view>

#include "tutti/core/compose.hpp"
#include "tutti/fusion/merge_gradients.hpp"
#include "tutti/schedule/as_ready.hpp"

namespace tutti::strategies {

/// Tensors are merged where waiting for the next costs less than another start-up, by the exact
/// programme for the paper's model: Shi, Chu and Li, "MG-WFBP", INFOCOM 2019.
struct MGWFBP {
  static constexpr std::string_view name = "MGWFBP";
  using strategy = compose<fusion::merge_gradients, schedule::as_ready>;
};

}  // namespace tutti::strategies
