#pragma once

#include <cmath>

#include "tutti/role/optimizer.hpp"

namespace tutti::optimizer {

/// Applies another optimizer to gradients whose norm over the whole model is at most `most`: if it
/// is greater, all gradients are multiplied by most / norm. Every worker sees the same mean, so all
/// workers clip alike. All gradients of a step must be known before any tensor is updated, so that
/// no update crosses the iteration's end. Runs on the host only. Cost: a pass over the mean
/// gradient, and another where it clips. After: Pascanu, Mikolov and Bengio, "On the difficulty of
/// training recurrent neural networks", ICML 2013.
template <optimizer_policy Optimizer>
struct clipped : Optimizer {
  static_assert(
      !requires(const Optimizer& its) { its.scale; },
      "tutti: the norm that is clipped here is of gradients which are still as many times "
      "too long as the loss was multiplied by. Fix: "
      "optimizer::loss_scaled<optimizer::clipped<O>>.");

  static constexpr bool needs_all_gradients = true;

  float most{1.0f};

  template <class Self, class Visitor>
  static void describe(Self& self, Visitor&& visit) {
    visit("most", self.most, "the gradient's norm is clipped to");
    Optimizer::describe(self, visit);
  }

  bool restores_residuals() const { return true; }  // the sum of squares is computed only if true
  float begin_step(double squares) {
    const double norm = std::sqrt(squares);
    const double factor = norm > static_cast<double>(most) ? static_cast<double>(most) / norm : 1;
    if constexpr (facts::needs_all_gradients<Optimizer>) {
      return static_cast<float>(factor) * Optimizer::begin_step(squares * factor * factor);
    } else {
      return static_cast<float>(factor);
    }
  }
};

}  // namespace tutti::optimizer
