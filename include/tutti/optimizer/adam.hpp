#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tutti/kernels/adam.hpp"
#include "tutti/role/optimizer.hpp"

namespace tutti::optimizer {

/// What weight decay is added to: the gradient, and so to its moments (coupled), or the step
/// (decoupled).
enum class decay { coupled, decoupled };

/// The names, in the order of the enumerators.
constexpr std::array<std::string_view, 2> names(decay) { return {"coupled", "decoupled"}; }

/// Adam: m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g^2;
/// x -= learning_rate * m' / (sqrt(v') + epsilon), where m' = m / (1 - beta1^t),
/// v' = v / (1 - beta2^t), and t is the number of this step, from 1. Weight decay is either
/// coupled, as in the paper, which replaces g by g + weight_decay * x, or decoupled (AdamW), which
/// also does x -= learning_rate * weight_decay * x. Cost: seven passes over a parameter, a root and
/// a quotient per element; two floats of memory per element. After: Kingma and Ba, ICLR 2015;
/// Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019. The defaults are
/// PyTorch's.
struct adam {
  using role = tutti::role::optimizer;
  static constexpr bool elementwise = true;

  float learning_rate{0.001f};
  double beta1{0.9};
  double beta2{0.999};
  float epsilon{1e-8f};
  float weight_decay{0.0f};
  optimizer::decay decay{optimizer::decay::coupled};

  template <class Self, class Visitor>
  static void describe(Self& self, Visitor&& visit) {
    visit("learning_rate", self.learning_rate,
          "length of a step while the gradient does not change");
    visit("beta1", self.beta1, "share of the mean gradient that is kept each step");
    visit("beta2", self.beta2, "share of the mean squared gradient that is kept each step");
    visit("epsilon", self.epsilon, "added to the root of the mean square");
    visit("weight_decay", self.weight_decay, "share of a parameter by which it decays");
    visit("decay", self.decay,
          "coupled: weight decay is added to the gradient; decoupled: to the step (AdamW)");
  }

  /// Throws usage_error unless beta1 and beta2 are from 0 to below 1.
  void expect_values() const { expect_betas(beta1, beta2); }

  static std::size_t memory_per_element() { return 2; }

  template <class Queue>
  void apply(Queue& queue, std::span<float> parameters, std::span<const float> gradient,
             const chunk_context& where) const {
    const std::size_t n = parameters.size();
    kernels::adam(queue, parameters, where.row(0, n), where.row(1, n), gradient, step(where.step));
  }

 private:
  kernels::adam_step step(std::uint64_t before) const {
    const auto count = static_cast<double>(before + 1);
    const bool coupled = decay == optimizer::decay::coupled;
    kernels::adam_step made;
    made.keep = static_cast<float>(beta1);
    made.take = static_cast<float>(1 - beta1);
    made.keep_squares = static_cast<float>(beta2);
    made.take_squares = static_cast<float>(1 - beta2);
    made.rate = static_cast<float>(double{learning_rate} / (1 - __builtin_pow(beta1, count)));
    made.root_factor = static_cast<float>(1 / __builtin_sqrt(1 - __builtin_pow(beta2, count)));
    made.epsilon = epsilon;
    made.added_parameter = coupled ? weight_decay : 0;
    made.kept_parameter = coupled ? 1 : 1 - learning_rate * weight_decay;
    return made;
  }
};
static_assert(optimizer_policy<adam>);

}  // namespace tutti::optimizer
