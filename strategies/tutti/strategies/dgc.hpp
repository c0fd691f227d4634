#pragma once

#include <string_view>

#include "tutti/architecture/all_gather.hpp"
#include "tutti/compression/density_warm_up.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/momentum_correction.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/core/compose.hpp"

namespace tutti::strategies {

/// All-gathers the largest 0.1 % of each tensor's accumulated momentum. An optimizer with a
/// momentum of its own is refused. `warm_up` is for engine.replan between epochs, and
/// `.compression.clip` is the paper's local clipping for recurrent networks. The elements that are
/// sent lose their momentum. While `warm_up` sends many elements, little momentum is left, so it is
/// for training of many epochs.
struct DGC {
  static constexpr std::string_view name = "DGC";
  static constexpr std::string_view after = "Lin et al., \"Deep Gradient Compression\", ICLR 2018";
  static constexpr std::string_view deviations =
      "The selection is exact, where the paper samples a threshold; biases are compressed, too; k "
      "= max(floor(n / 1000), 1), where the paper's program rounds up; momentum is not Nesterov's; "
      "weight decay belongs to the optimizer and gets no momentum; clipping uses the norm of a "
      "tensor, the paper's that of the model.";
  using strategy =
      compose<compression::momentum_correction<compression::error_feedback<compression::top_k>>,
              architecture::all_gather>;
  static constexpr policy_options<strategy> defaults() {
    return {.compression = {.momentum = 0.9, .decorated = {.density = 0.001}}};
  }
  static constexpr compression::density_warm_up warm_up{0.25, 0.0625, 0.015625, 0.004};
};

}  // namespace tutti::strategies
