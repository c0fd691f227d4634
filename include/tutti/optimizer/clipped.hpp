#pragma once

#include <cmath>

#include "tutti/base/error.hpp"
#include "tutti/role/optimizer.hpp"

namespace tutti::optimizer {

/// Applies another optimizer to gradients whose norm over the whole model is at most `most`: if it
/// is greater, all gradients are multiplied by most / norm. Every worker sees the same mean, so all
/// workers clip alike. All gradients of a step must be known before any tensor is updated, so that
/// no update crosses the iteration's end. A step whose norm is infinite or NaN updates nothing,
/// because no factor would make it `most`. Runs on the host only. Cost: a pass over the mean
/// gradient, and another where it clips. After: Pascanu, Mikolov and Bengio, "On the difficulty of
/// training recurrent neural networks", ICML 2013.
template <optimizer_policy Optimizer>
struct clipped : Optimizer {
  static_assert(
      !requires(const Optimizer& its) { its.scale; },
      "tutti: this would clip the norm of gradients that are still multiplied by the loss's scale. "
      "Fix: optimizer::loss_scaled<optimizer::clipped<O>>.");

  static constexpr bool needs_all_gradients = true;

  float most{1.0f};

  template <class Self, class Visitor>
  static void describe(Self& self, Visitor&& visit) {
    visit("most", self.most, "largest norm of the gradient, to which it is clipped");
    Optimizer::describe(self, visit);
  }

  /// Throws usage_error unless `most` is above 0.
  void expect_values() const {
    if (!(most > 0)) {
      throw usage_error(
          "the norm to which gradients are clipped must be above 0. Fix: 1, for example");
    }
    tutti::expect_values(static_cast<const Optimizer&>(*this));
  }

  bool restores_residuals() const { return true; }  // the sum of squares is computed only if true
  float begin_step(double squares) {
    const double norm = std::sqrt(squares);
    if (!std::isfinite(norm)) {
      return 0;
    }
    const double factor = norm > static_cast<double>(most) ? static_cast<double>(most) / norm : 1;
    if constexpr (facts::needs_all_gradients<Optimizer>) {
      return static_cast<float>(factor) * Optimizer::begin_step(squares * factor * factor);
    } else {
      return static_cast<float>(factor);
    }
  }
};

}  // namespace tutti::optimizer
