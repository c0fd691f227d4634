#pragma once

#include <string_view>

#include "tutti/architecture/all_gather.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/sparse_merge.hpp"
#include "tutti/schedule/at_most.hpp"

namespace tutti::strategies {

/// OMGS-SGD: all-gathers the largest 0.1 % of each group of tensors, one message at a time, and
/// remembers the rest. Tensors are merged into a group where that costs less than it saves.
struct OMGS {
  static constexpr std::string_view name = "OMGS";
  static constexpr std::string_view after =
      "Shi et al., \"Communication-efficient distributed deep learning with merged gradient "
      "sparsification on GPUs\", INFOCOM 2020";
  static constexpr std::string_view deviations =
      "Indices and values travel as one message; the two tensors nearest the output are merged by "
      "the same rule as others, and the size of a payload counts whole elements.";
  using strategy = compose<fusion::sparse_merge, schedule::at_most, architecture::all_gather,
                           compression::error_feedback<compression::top_k>>;
  static constexpr policy_options<strategy> defaults() {
    return {.compression = {.density = 0.001}};
  }
};

}  // namespace tutti::strategies
