#pragma once

#include <string_view>

#include "tutti/architecture/delayed.hpp"
#include "tutti/architecture/mean.hpp"
#include "tutti/architecture/replicated.hpp"
#include "tutti/core/compose.hpp"

namespace tutti::strategies {

/// Every step applies the sum of the step before, which travels under a whole step's computing; a
/// learning rate has to be for a sum.
struct Relaxed {
  static constexpr std::string_view name = "Relaxed";
  static constexpr std::string_view after =
      "tf_cnn_benchmarks, `--variable_update=replicated --variable_consistency=relaxed`";
  static constexpr std::string_view deviations = "";
  using strategy =
      compose<architecture::delayed<architecture::replicated<architecture::mean::none>>>;
};

}  // namespace tutti::strategies
