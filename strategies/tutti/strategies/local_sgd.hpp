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
  static constexpr std::string_view deviations = "The paper leaves the period open; four is ours.";
  using strategy = compose<fusion::up_to, architecture::local_sgd<>>;
};

/// Takes the mean of all models after each of the first thousand steps, and then goes on as
/// LocalSGD.
struct PostLocalSGD {
  static constexpr std::string_view name = "PostLocalSGD";
  static constexpr std::string_view after =
      "Lin et al., \"Don't use large mini-batches, use local SGD\", ICLR 2020";
  static constexpr std::string_view deviations =
      "At first ranks take means of models, each after a step of its own, where the paper takes "
      "means of gradients; the paper leaves both numbers open, and these are ours.";
  using strategy = LocalSGD::strategy;
  static constexpr policy_options<strategy> defaults() {
    return {.architecture = {.warm_up = 1000}};
  }
};

}  // namespace tutti::strategies
