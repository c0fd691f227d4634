#pragma once

#include <string_view>

#include "tutti/architecture/delayed.hpp"
#include "tutti/core/compose.hpp"

namespace tutti::strategies {

/// Every step applies the mean of the step before, which travels under a whole step's computing.
struct Relaxed {
  static constexpr std::string_view name = "Relaxed";
  static constexpr std::string_view after =
      "tf_cnn_benchmarks, `--variable_update=replicated --variable_consistency=relaxed`";
  static constexpr std::string_view deviations = "There gradients are summed, here averaged.";
  using strategy = compose<architecture::delayed<>>;
};

}  // namespace tutti::strategies
