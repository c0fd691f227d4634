#pragma once

#include <string_view>

#include "tutti/architecture/all_gather.hpp"
#include "tutti/architecture/diloco.hpp"
#include "tutti/architecture/streaming_diloco.hpp"
#include "tutti/compression/e3m0.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/up_to.hpp"

namespace tutti::strategies {

/// Each rank takes 500 steps alone. Then all take one outer step on the mean of how far their
/// models have moved. The paper's inner optimizer is `optimizer::adam{.decay =
/// optimizer::decay::decoupled}`.
struct DiLoCo {
  static constexpr std::string_view name = "DiLoCo";
  static constexpr std::string_view after =
      "Douillard et al., \"DiLoCo: Distributed Low-Communication Training of Language Models\", "
      "2023";
  static constexpr std::string_view deviations =
      "The inner optimizer is whichever the engine has; the paper's is AdamW.";
  using strategy = compose<fusion::up_to, architecture::diloco<>>;
};

/// DiLoCo whose outer steps are taken by one fragment of the model after the other. The differences
/// of a fragment are sent in four bits, and have one step of training in which to arrive.
struct StreamingDiLoCo {
  static constexpr std::string_view name = "StreamingDiLoCo";
  static constexpr std::string_view after =
      "Douillard et al., \"Streaming DiLoCo with overlapping communication\", 2025";
  static constexpr std::string_view deviations =
      "A fragment consists of every fourth tensor, not of layers; E3M0 is scaled to each tensor's "
      "largest magnitude, about which the paper says nothing.";
  using strategy =
      compose<architecture::streaming_diloco<architecture::all_gather>, compression::e3m0>;
};

}  // namespace tutti::strategies
