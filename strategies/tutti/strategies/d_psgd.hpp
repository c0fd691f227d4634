#pragma once

#include <string_view>

#include "tutti/architecture/gossip.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/up_to.hpp"

namespace tutti::strategies {

/// In each step a rank's model becomes the mean of itself and the models of its two neighbours on a
/// ring.
struct DPSGD {
  static constexpr std::string_view name = "DPSGD";
  static constexpr std::string_view after =
      "Lian et al., \"Can decentralized algorithms outperform centralized algorithms? A case study "
      "for decentralized parallel stochastic gradient descent\", NIPS 2017";
  static constexpr std::string_view deviations =
      "A model is sent once its gradient is complete; the paper also sends it while the gradient "
      "is computed.";
  using strategy = compose<fusion::up_to, architecture::gossip>;
};

}  // namespace tutti::strategies
