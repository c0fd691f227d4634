#pragma once

#include <string_view>

#include "tutti/architecture/local_sgd.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/up_to.hpp"

namespace tutti::strategies {

/// Each rank takes four steps alone. Then all models become their mean.
struct LocalSGD {
  static constexpr std::string_view name = "LocalSGD";
  static constexpr std::string_view after =
      "Stich, \"Local SGD converges fast and communicates little\", ICLR 2019";
  static constexpr std::string_view deviations =
      "The paper leaves the period open; four steps is tutti's choice.";
  using strategy = compose<fusion::up_to, architecture::local_sgd<>>;
};

/// Takes the mean of all models after each of the first thousand steps, and then goes on as
/// LocalSGD.
struct PostLocalSGD {
  static constexpr std::string_view name = "PostLocalSGD";
  static constexpr std::string_view after =
      "Lin et al., \"Don't use large mini-batches, use local SGD\", ICLR 2020";
  static constexpr std::string_view deviations =
      "At first each rank takes a step of its own and then models are averaged, where the paper "
      "averages gradients. The paper leaves both numbers of steps open; these are tutti's choice.";
  using strategy = LocalSGD::strategy;
  static constexpr policy_options<strategy> defaults() {
    return {.architecture = {.warm_up = 1000}};
  }
};

}  // namespace tutti::strategies
