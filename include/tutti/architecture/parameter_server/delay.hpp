#pragma once

#include <cstddef>
#include <span>

#include "tutti/architecture/parameter_server/consistency.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/kernels/compensation.hpp"

// How a server corrects a gradient, under consistency::delay_compensated.
namespace tutti::architecture {

inline bool is_adaptive(const consistency::delay_compensated::options& set) {
  return set.lambda_is == consistency::delay_compensated::rule::adaptive;
}

/// Corrects `gradient` for the change of the parameters from `read`, on which it was computed, to
/// `now`. Only the adaptive form uses `mean_square`.
template <class World>
void compensate_delay(const World& world, const consistency::delay_compensated::options& set,
                      const chunk& piece, std::span<float> gradient, std::span<float> mean_square,
                      std::span<const float> now, std::span<const float> read) {
  charge(world.queue(), (is_adaptive(set) ? 6U : 4U) * sizeof(float) * piece.elements);
  if (world.phantom()) {
    return;
  }
  const auto lambda = static_cast<float>(set.lambda);
  if (is_adaptive(set)) {
    kernels::compensate_adaptively(world.queue(), gradient, mean_square, now, read, lambda,
                                   static_cast<float>(set.decay),
                                   static_cast<float>(1 - set.decay));
  } else {
    kernels::compensate(world.queue(), gradient, now, read, lambda);
  }
}

}  // namespace tutti::architecture
