#pragma once

#include <string_view>

#include "tutti/architecture/sparse_tree.hpp"
#include "tutti/compression/density_warm_up.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/all.hpp"

namespace tutti::strategies {

/// Every rank selects the largest 0.1 % of the whole model's gradient. The selections are merged
/// along a tree, and every merge again keeps as many elements; those that are left in the end are
/// applied. What a merge leaves out is remembered as far as the original does, or all of it with
/// `.architecture = {.give_back = architecture::give_back::exact}`. `warm_up` is for engine.replan
/// between epochs.
struct gTopKSGD {
  static constexpr std::string_view name = "gTopKSGD";
  static constexpr std::string_view after = "Shi et al., \"gTop-k S-SGD\", ICDCS 2019";
  static constexpr std::string_view deviations =
      "Any number of ranks is possible; among equal magnitudes the lower index wins; sums are sent "
      "as floats, where the original sends doubles after the first round.";
  using strategy = compose<fusion::all, compression::error_feedback<compression::top_k>,
                           architecture::sparse_tree>;
  static constexpr policy_options<strategy> defaults() {
    return {.architecture = {.give_back = architecture::give_back::compatible}};
  }
  static constexpr compression::density_warm_up warm_up{0.004};
};

}  // namespace tutti::strategies
