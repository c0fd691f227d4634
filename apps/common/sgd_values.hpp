#pragma once

#include <type_traits>

#include "common/job.hpp"
#include "models/declaration.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/optimizer/sgd.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/compression.hpp"
#include "tutti/strategies/ef_sign_sgd.hpp"
#include "tutti/strategies/mean_of_signs.hpp"

namespace common {

using ef_sign = tutti::strategies::EFSignSGD::strategy::compression;
using ef_bare_sign = tutti::strategies::EFMeanOfSigns::strategy::compression;

/// Returns the SGD values for training a model with a strategy: the model's own, unless a step has
/// another meaning under the strategy, or the flags set them.
template <class Strategy>
tutti::optimizer::sgd sgd_values(const models::declaration& model, const job& asked) {
  using strategy = tutti::strategy_of<Strategy>;
  tutti::optimizer::sgd values{.learning_rate = model.learning_rate,
                               .momentum = model.momentum,
                               .weight_decay = asked.weight_decay.value_or(0)};
  if constexpr (tutti::casts_votes<typename strategy::compression>) {
    values.learning_rate = 5e-4F;  // a sign has length 1, whatever the gradient's length
    values.momentum = 0;
  } else if constexpr (std::is_same_v<typename strategy::compression, ef_bare_sign>) {
    values.learning_rate = 5e-4F;  // the payload is signs here, too
  } else if constexpr (tutti::facts::keeps_momentum<typename strategy::compression>) {
    values.momentum = 0;  // the payload is a momentum already
  } else if constexpr (std::is_same_v<typename strategy::compression, ef_sign>) {
    values.learning_rate *= 4;  // the residual acts as a momentum, and two are unstable
    values.momentum = 0;
  } else if constexpr (tutti::facts::stale<typename strategy::architecture> &&
                       !tutti::facts::drops_gradients<typename strategy::architecture>) {
    values.learning_rate /= 4;  // every worker's push is a step of its own
  }
  values.learning_rate = asked.learning_rate.value_or(values.learning_rate);
  values.momentum = asked.momentum.value_or(values.momentum);
  return values;
}

}  // namespace common
