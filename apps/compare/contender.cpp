#include "compare/contender.hpp"

#include <algorithm>

namespace compare {

double row::bound() const {
  const double wire = simulated.busiest_card / of.where.card.bytes_per_second;
  if (simulated.crosses_iterations) {
    return std::max(compute(), wire);
  }
  const double first_gradient = of.model->tensors.back().backward_seconds;
  return std::max(compute(), of.model->forward() + first_gradient + wire);
}

}  // namespace compare
