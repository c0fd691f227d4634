#pragma once

#include <string_view>

#include "tutti/architecture/bipartite_averaging.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/all.hpp"

namespace tutti::strategies {

/// In each step of an active rank, its model and that of a passive rank both become their mean. No
/// rank runs in lock-step with another. The whole model is one buffer.
struct ADPSGD {
  static constexpr std::string_view name = "ADPSGD";
  static constexpr std::string_view after =
      "Lian et al., \"Asynchronous decentralized parallel stochastic gradient descent\", ICML 2018";
  static constexpr std::string_view deviations =
      "An active rank averages once it has its gradient; in the paper it does so while computing "
      "the gradient.";
  using strategy = compose<fusion::all, architecture::bipartite_averaging>;
};

}  // namespace tutti::strategies
