#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "tutti/base/assert.hpp"
#include "tutti/kernels/descent.hpp"
#include "tutti/role/optimizer.hpp"

namespace tutti::optimizer {

/// The direction of a step with momentum: the new momentum (heavy_ball), or the gradient plus
/// `momentum` times the new momentum (nesterov).
enum class acceleration { heavy_ball, nesterov };

/// The names, in the order of the enumerators.
constexpr std::array<std::string_view, 2> names(acceleration) { return {"heavy_ball", "nesterov"}; }

/// Stochastic gradient descent with momentum and weight decay: with d = g + weight_decay * x,
/// m = momentum * m + d; x -= learning_rate * m, or by Nesterov's acceleration
/// x -= learning_rate * (d + momentum * m).
/// Cost: three passes over a parameter; with momentum five, and one float of memory per element. An
/// engine that began without momentum has no such memory, and refuses a change to any momentum. One
/// that began with momentum may change it, to 0 and back. After: Sutskever et al., ICML 2013, in
/// PyTorch's form (the learning rate is outside the momentum).
struct sgd {
  using role = tutti::role::optimizer;
  static constexpr bool elementwise = true;

  float learning_rate{0.1f};
  float momentum{0.0f};
  float weight_decay{0.0f};
  optimizer::acceleration acceleration{optimizer::acceleration::heavy_ball};

  template <class Self, class Visitor>
  static void describe(Self& self, Visitor&& visit) {
    visit("learning_rate", self.learning_rate, "step along the averaged gradient");
    visit("momentum", self.momentum, "share of the last direction that is kept");
    visit("weight_decay", self.weight_decay, "share of a parameter added to its gradient");
    visit("acceleration", self.acceleration,
          "heavy_ball: along the momentum; nesterov: along the one that would be next");
  }

  std::size_t memory_per_element() const { return momentum == 0.0f ? 0 : 1; }

  template <class Queue>
  void apply(Queue& queue, std::span<float> parameters, std::span<const float> gradient,
             const chunk_context& where) const {
    const kernels::descent values{learning_rate, momentum, weight_decay};
    if (where.memory == nullptr) {
      TUTTI_ASSERT(momentum == 0.0f || parameters.empty(), "momentum needs memory");
      kernels::descend(queue, parameters, gradient, values);
    } else if (acceleration == optimizer::acceleration::nesterov) {
      kernels::descend_with_nesterov(queue, parameters, where.row(0, parameters.size()), gradient,
                                     values);
    } else {  // also for momentum 0, so that m is right if the momentum is raised later
      kernels::descend_with_momentum(queue, parameters, where.row(0, parameters.size()), gradient,
                                     values);
    }
  }
};
static_assert(optimizer_policy<sgd>);

}  // namespace tutti::optimizer
