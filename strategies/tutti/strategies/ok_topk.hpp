#pragma once

#include <string_view>

#include "tutti/architecture/sparse_regions.hpp"
#include "tutti/compression/by_kth_magnitude.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/all.hpp"

namespace tutti::strategies {

/// Each rank sends the largest 2 % of the whole model to the owners of regions, which add them up.
/// Of the sums, as many elements again are sent to all. Both are selected by magnitudes that are
/// found every 32 steps, and in between are corrected by how many elements they let through.
/// Regions are found every 64 steps. These are the authors' settings for VGG; for BERT they select
/// 1 %, find magnitudes every 128 steps, and correct them in other ways.
struct OkTopk {
  static constexpr std::string_view name = "OkTopk";
  static constexpr std::string_view after =
      "Li and Hoefler, \"Near-optimal sparse allreduce\", PPoPP 2022";
  static constexpr std::string_view deviations =
      "Sums are not balanced among owners before they are gathered; there are no dense steps at "
      "first, where the original takes 512; an element of exactly a kept magnitude is sent, where "
      "the original sends only larger ones; regions are cut evenly, where the original's last one "
      "takes the remainder; magnitudes are corrected as the original does for VGG, not by its "
      "other factors and bounds for LSTM and BERT.";
  using strategy = compose<fusion::all, compression::error_feedback<compression::by_kth_magnitude>,
                           architecture::sparse_regions>;
  static constexpr policy_options<strategy> defaults() {
    return {.compression = {.density = 0.02},
            .architecture = {.raises = 5, .own_correction = 1.012, .sum_correction = 1.008}};
  }
};

}  // namespace tutti::strategies
