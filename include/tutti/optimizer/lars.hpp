#pragma once

#include <cstddef>
#include <span>

#include "tutti/kernels/layerwise.hpp"
#include "tutti/role/optimizer.hpp"

namespace tutti::optimizer {

/// LARS, for batches so large that one learning rate is too high for some layers and too low for
/// others: a tensor's step is a share of the tensor's own norm. With
/// r = trust * |x| / (|g| + weight_decay * |x|):
/// m = momentum * m + learning_rate * r * (g + weight_decay * x); x -= m. If a norm is 0, a case
/// that the paper leaves open, r is 1, so that biases can leave 0. Runs on the host only. Cost: as
/// sgd with momentum, and a pass over the parameter and one over the gradient. After: You, Gitman
/// and Ginsburg, "Large batch training of convolutional networks", 2017, algorithm 1.
struct lars {
  using role = tutti::role::optimizer;
  static constexpr bool elementwise = false;

  float learning_rate{1.0f};
  float momentum{0.9f};
  float weight_decay{0.0005f};
  float trust{0.001f};

  template <class Self, class Visitor>
  static void describe(Self& self, Visitor&& visit) {
    visit("learning_rate", self.learning_rate,
          "learning rate of all tensors, which multiplies each tensor's own");
    visit("momentum", self.momentum, "share of the last step that is repeated");
    visit("weight_decay", self.weight_decay, "share of a parameter added to its gradient");
    visit("trust", self.trust,
          "a tensor's own rate is this times its norm, divided by its gradient's norm");
  }

  static std::size_t memory_per_element() { return 1; }

  template <class Queue>
  void apply(Queue& queue, std::span<float> parameters, std::span<const float> gradient,
             const chunk_context& where) const {
    kernels::descend_layerwise(queue, parameters, where.row(0, parameters.size()), gradient,
                               {learning_rate, momentum, weight_decay, trust});
  }
};
static_assert(optimizer_policy<lars>);

}  // namespace tutti::optimizer
