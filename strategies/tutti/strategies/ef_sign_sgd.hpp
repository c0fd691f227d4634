#pragma once

#include <string_view>

#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/compression/rescaled_error_feedback.hpp"
#include "tutti/compression/scaled_sign.hpp"
#include "tutti/core/compose.hpp"

namespace tutti::strategies {

/// Sends one bit an element, and a scale for each rank's part of a tensor. What that loses is
/// remembered at both ends, workers and owners, as a step that was not made, so that the residual
/// follows a changed learning rate.
struct EFSignSGD {
  static constexpr std::string_view name = "EFSignSGD";
  static constexpr std::string_view after =
      "Karimireddy et al., \"Error Feedback Fixes SignSGD\", ICML 2019, algorithm 2";
  static constexpr std::string_view deviations =
      "Each owner's part of a tensor has its own scale, where the original has one for a whole "
      "tensor; with architecture::parameter_server<> tutti also has one for a whole tensor. An "
      "element of 0 is sent as positive, where the original's program leaves it 0.";
  using strategy = compose<compression::rescaled_error_feedback<compression::scaled_sign>,
                           architecture::reduce_scatter_all_gather>;
};

}  // namespace tutti::strategies
