#pragma once

#include <string_view>

#include "tutti/core/compose.hpp"
#include "tutti/fusion/all.hpp"
#include "tutti/schedule/at_end.hpp"

namespace tutti::strategies {

/// One all-reduce of everything after the backward pass: BSP-A2A of Shi et al.'s survey, 2020.
struct BSP {
  static constexpr std::string_view name = "BSP";
  using strategy = compose<fusion::all, schedule::at_end>;
};

}  // namespace tutti::strategies
