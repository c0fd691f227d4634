#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/kernels/adam.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/role/optimizer.hpp"

namespace tutti::optimizer {

/// 1-bit Adam. Before step `freeze_step`: m = beta1 * m + (1 - beta1) * g;
/// v = beta2 * v + (1 - beta2) * g^2; x -= learning_rate *
/// (m / (sqrt(v) + epsilon) + weight_decay * x), without bias corrections. From that step on, v no
/// longer changes and ranks exchange momenta instead of gradients. A rank sends `outgoing`, which
/// is beta1 * m + (1 - beta1) * g of its own gradient. All ranks receive one common momentum, which
/// becomes m, and x moves along it.
/// The bit that is sent moves every parameter, even one whose gradients have all been 0. The step
/// of such a parameter is divided by epsilon only and is no longer small. Where a model has such
/// parameters, for example weights of units that never fire, training ends well with an epsilon of
/// 1e-4; DeepSpeed's users mask them. Needs architecture::momentum_exchange. Cost: as adam; after
/// the freeze as much, in two passes. After: Tang et al., "1-bit Adam", ICML 2021; DeepSpeed's
/// OnebitAdam, whose first step moves nothing.
struct one_bit_adam {
  using role = tutti::role::optimizer;
  static constexpr bool elementwise = true;

  float learning_rate{0.001f};
  double beta1{0.9};
  double beta2{0.999};
  float epsilon{1e-8f};
  float weight_decay{0.0f};
  std::uint64_t freeze_step{100'000};

  template <class Self, class Visitor>
  static void describe(Self& self, Visitor&& visit) {
    visit("learning_rate", self.learning_rate, "length of a step");
    visit("beta1", self.beta1, "share of the mean gradient that is kept each step");
    visit("beta2", self.beta2, "share of the mean squared gradient that is kept each step");
    visit("epsilon", self.epsilon, "added to the root of the mean square");
    visit("weight_decay", self.weight_decay, "share of a parameter added to its step");
    visit("freeze_step", self.freeze_step,
          "first step that keeps the mean square of the step before and exchanges momenta");
  }

  static std::size_t memory_per_element() { return 2; }

  bool exchanges_momenta(std::uint64_t step) const { return step >= freeze_step; }

  /// Takes a gradient into the momentum, beta1 * m + (1 - beta1) * g, which is then sent.
  template <class Queue>
  void outgoing(Queue& queue, std::span<const float> gradient, const chunk_context& where) const {
    kernels::blend(queue, where.row(0, gradient.size()), gradient, static_cast<float>(beta1),
                   static_cast<float>(1 - beta1));
  }

  template <class Queue>
  void apply(Queue& queue, std::span<float> parameters, std::span<const float> mean,
             const chunk_context& where) const {
    const std::size_t n = parameters.size();
    const std::span<float> m = where.row(0, n);
    const std::span<float> v = where.row(1, n);
    if (exchanges_momenta(where.step)) {
      kernels::adam_along(queue, parameters, m, v, values());
    } else {
      kernels::adam(queue, parameters, m, v, mean, values());
    }
  }

 private:
  kernels::adam_step values() const {
    kernels::adam_step made;
    made.keep = static_cast<float>(beta1);
    made.take = static_cast<float>(1 - beta1);
    made.keep_squares = static_cast<float>(beta2);
    made.take_squares = static_cast<float>(1 - beta2);
    made.rate = learning_rate;
    made.root_factor = 1;
    made.epsilon = epsilon;
    made.kept_parameter = 1 - learning_rate * weight_decay;
    return made;
  }
};
static_assert(optimizer_policy<one_bit_adam>);

}  // namespace tutti::optimizer
