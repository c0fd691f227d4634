#pragma once

#include <string_view>

#include "tutti/base/units.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/schedule/in_order.hpp"

namespace tutti::strategies {

/// Buckets of 25 MiB, the first of 1 MiB, launched strictly in order: Li et al., "PyTorch
/// Distributed", VLDB 2020, after its one rebuild.
struct DDP {
  static constexpr std::string_view name = "DDP";
  using strategy = compose<fusion::up_to, schedule::in_order>;
  static constexpr policy_options<strategy> defaults() {
    return {.fusion = {.bytes = 25_MiB, .first_bytes = 1_MiB, .crossing = fusion::crossing::in}};
  }
};

}  // namespace tutti::strategies
