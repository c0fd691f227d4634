#pragma once

#include <string_view>

#include "tutti/core/compose.hpp"
#include "tutti/fusion/all.hpp"
#include "tutti/schedule/at_end.hpp"

namespace tutti::strategies {

/// One all-reduce of all gradients after the backward pass.
struct BSP {
  static constexpr std::string_view name = "BSP";
  static constexpr std::string_view after =
      "Shi et al., \"A Quantitative Survey of Communication Optimizations\", 2020, BSP-A2A";
  static constexpr std::string_view deviations =
      "The original's buffer ends after 2^29 elements; tutti's has no such limit.";
  using strategy = compose<fusion::all, schedule::at_end>;
};

}  // namespace tutti::strategies
