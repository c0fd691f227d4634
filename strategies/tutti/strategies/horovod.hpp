#pragma once

#include <string_view>

#include "tutti/base/units.hpp"
#include "tutti/coordination/negotiated.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/when_ready.hpp"
#include "tutti/schedule/as_ready.hpp"

namespace tutti::strategies {

/// Every cycle sends what became ready on all ranks in it, in fusion buffers: Sergeev and Del
/// Balso, "Horovod", 2018, with its defaults since v0.21, a cycle of 1 ms and buffers of 128 MiB.
struct Horovod {
  static constexpr std::string_view name = "Horovod";
  using strategy = compose<fusion::when_ready, schedule::as_ready, coordination::negotiated>;
  static constexpr policy_options<strategy> defaults() {
    return {.fusion = {.bytes = 128_MiB, .cycle = 1e-3}};
  }
  /// Cycles of 5 ms and buffers of 64 MiB.
  static constexpr policy_options<strategy> defaults_before_0_21() {
    return {.fusion = {.bytes = 64_MiB, .cycle = 5e-3}};
  }
};

}  // namespace tutti::strategies
