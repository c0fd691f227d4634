#pragma once

#include <string_view>

#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/scaled_sign.hpp"
#include "tutti/core/compose.hpp"

namespace tutti::strategies {

/// One bit an element and one scale a tensor, what is lost remembered at both ends.
struct EFSignSGD {
  static constexpr std::string_view name = "EFSignSGD";
  static constexpr std::string_view after =
      "Karimireddy et al., \"Error Feedback Fixes SignSGD\", ICML 2019";
  static constexpr std::string_view deviations =
      "What is remembered are gradients, there gradients times the learning rate.";
  using strategy = compose<compression::error_feedback<compression::scaled_sign>,
                           architecture::reduce_scatter_all_gather>;
};

}  // namespace tutti::strategies
