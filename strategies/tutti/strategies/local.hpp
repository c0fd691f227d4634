#pragma once

#include <string_view>

#include "tutti/architecture/independent.hpp"
#include "tutti/core/compose.hpp"

namespace tutti::strategies {

/// No communication at all, as a bound to compare with, and for training on one rank.
struct Local {
  static constexpr std::string_view name = "Local";
  static constexpr std::string_view after = "tutti's own, an upper bound on speed";
  static constexpr std::string_view deviations = "";
  using strategy = compose<architecture::independent>;
};

}  // namespace tutti::strategies
