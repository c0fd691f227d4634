#pragma once

#include <string_view>

#include "tutti/base/units.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/role/fusion.hpp"
#include "tutti/schedule/in_order.hpp"

namespace tutti::strategies {

/// Buckets of 25 MiB, the first of 1 MiB, each of one element type, launched strictly in order: Li
/// et al., "PyTorch Distributed", VLDB 2020, after its one rebuild. DDP rebuilds in the order in
/// which rank 0's gradients came, here it is the model's backward order; a gradient counts for its
/// bytes as floats.
struct DDP {
  static constexpr std::string_view name = "DDP";
  using strategy = compose<fusion::up_to, schedule::in_order>;
  static constexpr policy_options<strategy> defaults() {
    return {.fusion = {.bytes = 25_MiB, .first_bytes = 1_MiB, .types = fusion_types::apart}};
  }
  /// The first step of a model without unused parameters, before `engine.replan` to the defaults.
  static constexpr policy_options<strategy> defaults_before_rebuild() {
    return {.fusion = {.bytes = fusion::by_bytes, .types = fusion_types::apart}};
  }
};

}  // namespace tutti::strategies
