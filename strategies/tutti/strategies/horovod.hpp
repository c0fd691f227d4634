#pragma once

#include <cstddef>
#include <string_view>

#include "tutti/base/units.hpp"
#include "tutti/coordination/negotiated.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/when_ready.hpp"
#include "tutti/role/fusion.hpp"
#include "tutti/schedule/as_ready.hpp"

namespace tutti::strategies {

/// Every cycle sends what became ready on all ranks in it, in fusion buffers: Sergeev and Del
/// Balso, "Horovod", 2018, with its defaults since v0.21, a cycle of 1 ms and buffers of 128 MiB.
/// Who has not 1, 2, 4, … ranks on each host says how many: there Horovod rounds its threshold up.
struct Horovod {
  static constexpr std::string_view name = "Horovod";
  using strategy = compose<fusion::when_ready, schedule::as_ready, coordination::negotiated>;
  static constexpr policy_options<strategy> defaults() {
    return {.fusion = {.bytes = 128_MiB, .cycle = 1e-3, .types = fusion_types::apart}};
  }
  /// To 64 doubles for each of so many ranks of a host.
  static constexpr policy_options<strategy> defaults_on_hosts_of(std::size_t ranks) {
    auto its = defaults();
    its.fusion.multiple = 64 * sizeof(double) * ranks;
    return its;
  }
  /// Cycles of 5 ms and buffers of 64 MiB.
  static constexpr policy_options<strategy> defaults_before_0_21() {
    auto its = defaults();
    its.fusion.bytes = 64_MiB;
    its.fusion.cycle = 5e-3;
    return its;
  }
};

}  // namespace tutti::strategies
