#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/kernels/layerwise.hpp"
#include "tutti/role/optimizer.hpp"

namespace tutti::optimizer {

/// LAMB, which is to Adam what LARS is to momentum: a tensor's step is a share of the tensor's own
/// norm. m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g^2;
/// u = m' / (sqrt(v') + epsilon) + weight_decay * x, where m' = m / (1 - beta1^t),
/// v' = v / (1 - beta2^t), and t is the number of this step, from 1;
/// x -= learning_rate * |x| / |u| * u, with the norms of the whole tensor. If one of the norms is
/// 0, a case that the paper leaves open, their quotient is 1. Runs on the host only. Cost: as adam,
/// and three more passes. After: You et al., "Large batch optimization for deep learning: training
/// BERT in 76 minutes", ICLR 2020, algorithm 2, with the identity for its phi.
struct lamb {
  using role = tutti::role::optimizer;
  static constexpr bool elementwise = false;

  float learning_rate{0.001f};
  double beta1{0.9};
  double beta2{0.999};
  float epsilon{1e-6f};
  float weight_decay{0.01f};

  template <class Self, class Visitor>
  static void describe(Self& self, Visitor&& visit) {
    visit("learning_rate", self.learning_rate, "share of its own norm by which a tensor moves");
    visit("beta1", self.beta1, "share of the mean gradient that is kept each step");
    visit("beta2", self.beta2, "share of the mean squared gradient that is kept each step");
    visit("epsilon", self.epsilon, "added to the root of the mean square");
    visit("weight_decay", self.weight_decay, "share of a parameter added to its direction");
  }

  /// Throws usage_error unless beta1 and beta2 are from 0 to below 1.
  void expect_values() const { expect_betas(beta1, beta2); }

  static std::size_t memory_per_element() { return 2; }

  template <class Queue>
  void apply(Queue& queue, std::span<float> parameters, std::span<const float> gradient,
             const chunk_context& where) const {
    const std::size_t n = parameters.size();
    kernels::adam_layerwise(queue, parameters, where.row(0, n), where.row(1, n), gradient,
                            moments(where.step), learning_rate, weight_decay);
  }

 private:
  kernels::adam_step moments(std::uint64_t before) const {
    const auto count = static_cast<double>(before + 1);
    kernels::adam_step made;
    made.keep = static_cast<float>(beta1);
    made.take = static_cast<float>(1 - beta1);
    made.keep_squares = static_cast<float>(beta2);
    made.take_squares = static_cast<float>(1 - beta2);
    made.rate = static_cast<float>(1 / (1 - std::pow(beta1, count)));
    made.root_factor = static_cast<float>(1 / std::sqrt(1 - std::pow(beta2, count)));
    made.epsilon = epsilon;
    return made;
  }
};
static_assert(optimizer_policy<lamb>);

}  // namespace tutti::optimizer
