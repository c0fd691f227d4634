#pragma once

#include <string_view>

#include "tutti/architecture/parameter_server.hpp"
#include "tutti/core/compose.hpp"

namespace tutti::strategies {

/// Servers update at every push, with a gradient that is corrected for how far the parameters have
/// moved since its worker read them.
struct DCASGD {
  static constexpr std::string_view name = "DCASGD";
  static constexpr std::string_view after =
      "Zheng et al., \"Asynchronous stochastic gradient descent with delay compensation\", ICML "
      "2017, DC-ASGD-c";
  static constexpr std::string_view deviations =
      "For DC-ASGD-a, set `lambda_is` to adaptive and `lambda` to 2.";
  using strategy =
      compose<architecture::parameter_server<consistency::delay_compensated, updated_by::servers>>;
};

}  // namespace tutti::strategies
