#pragma once

#include <string_view>

#include "tutti/architecture/push_sum.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/up_to.hpp"

namespace tutti::strategies {

/// In each step a rank sends half of its model to one other rank, in turn the rank 1, 2, 4, ...
/// places ahead.
struct SGP {
  static constexpr std::string_view name = "SGP";
  static constexpr std::string_view after =
      "Assran et al., \"Stochastic gradient push for distributed deep learning\", ICML 2019";
  static constexpr std::string_view deviations =
      "Each rank knows every push-sum weight, so that none is sent; communication does not overlap "
      "later steps.";
  using strategy = compose<fusion::up_to, architecture::push_sum>;
};

}  // namespace tutti::strategies
