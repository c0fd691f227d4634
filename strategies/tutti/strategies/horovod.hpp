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

/// Every cycle sends what became ready on all ranks in it, in fusion buffers: with the defaults
/// since v0.21 a cycle is 1 ms and buffers are of 128 MiB, rounded up to a multiple of 64 doubles
/// for each rank of a host.
struct Horovod {
  static constexpr std::string_view name = "Horovod";
  static constexpr std::string_view after = "Sergeev and Del Balso, \"Horovod\", 2018, as of v0.21";
  static constexpr std::string_view deviations =
      "A tensor counts for its bytes, as on CPUs there; the caller says how many ranks share "
      "a host; a tensor is known by its place, not its name; a cycle begins when there is "
      "news.";
  using strategy = compose<fusion::when_ready, schedule::as_ready, coordination::negotiated>;
  static constexpr policy_options<strategy> defaults(std::size_t on_a_host = 1) {
    return {.fusion = {128_MiB, 1e-3, 64 * sizeof(double) * on_a_host, 1, fusion_types::apart}};
  }
  /// Cycles of 5 ms and buffers of 64 MiB.
  static constexpr policy_options<strategy> defaults_before_0_21(std::size_t on_a_host = 1) {
    return {.fusion = {64_MiB, 5e-3, 64 * sizeof(double) * on_a_host, 1, fusion_types::apart}};
  }
};

}  // namespace tutti::strategies
