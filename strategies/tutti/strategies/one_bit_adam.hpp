#pragma once

#include <string_view>

#include "tutti/architecture/momentum_exchange.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/scaled_sign.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/optimizer/one_bit_adam.hpp"

namespace tutti::strategies {

/// Takes dense steps of Adam at first. After that it sends momenta, in one bit an element and a
/// scale for each rank's part, and remembers what that loses at workers and owners. The engine's
/// optimizer must be optimizer::one_bit_adam, whose `freeze_step` says when the first phase ends.
struct OneBitAdam {
  static constexpr std::string_view name = "OneBitAdam";
  static constexpr std::string_view after = "Tang et al., \"1-bit Adam\", ICML 2021";
  static constexpr std::string_view deviations =
      "A worker has one scale for each owner's part of a tensor, where DeepSpeed has one for the "
      "whole tensor and its padding; signs are packed in signSGD's words, in which a set bit is a "
      "negative element; a single worker compresses, too; a checkpoint holds residuals, where "
      "DeepSpeed resumes without them.";
  using strategy = compose<compression::error_feedback<compression::norm_scaled_sign>,
                           architecture::momentum_exchange>;
};

}  // namespace tutti::strategies
