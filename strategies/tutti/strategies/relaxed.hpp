#pragma once

#include <string_view>

#include "tutti/architecture/delayed.hpp"
#include "tutti/architecture/mean.hpp"
#include "tutti/architecture/replicated.hpp"
#include "tutti/core/compose.hpp"

namespace tutti::strategies {

/// Every step applies the sum of the gradients of the step before, which has a whole step's
/// computing in which to arrive. The learning rate has to be one for a sum.
struct Relaxed {
  static constexpr std::string_view name = "Relaxed";
  static constexpr std::string_view after =
      "tf_cnn_benchmarks, `--variable_update=replicated --variable_consistency=relaxed`";
  static constexpr std::string_view deviations = "";
  using strategy =
      compose<architecture::delayed<architecture::replicated<architecture::mean::none>>>;
};

}  // namespace tutti::strategies
