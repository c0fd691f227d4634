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

/// Every cycle sends the tensors that have become ready on all ranks, in fusion buffers. The
/// defaults are those since v0.21: cycles of 1 ms, and buffers of 128 MiB, rounded up to a multiple
/// of 64 doubles for each rank of a host. A rank says that a tensor is ready by its name, or by one
/// bit while the tensor is among the last 1024 that were launched.
struct Horovod {
  static constexpr std::string_view name = "Horovod";
  static constexpr std::string_view after = "Sergeev and Del Balso, \"Horovod\", 2018, as of v0.21";
  static constexpr std::string_view deviations =
      "A tensor counts as exactly its own bytes, as in Horovod on CPUs; the caller says how many "
      "ranks share a host; a cycle begins only when a rank has something to report. Rank 0 sends "
      "launches as words, where Horovod's ranks combine a bit vector, and only a new plan "
      "invalidates a cached name, because ranks agree on shapes and types at the start. Named "
      "groups are `fusion::by_group` around this fusion, and a group above the threshold is not "
      "cut.";
  using strategy = compose<fusion::when_ready, schedule::as_ready, coordination::negotiated>;
  static constexpr policy_options<strategy> defaults(std::size_t on_a_host = 1) {
    return {.fusion = {128_MiB, 1e-3, 64 * sizeof(double) * on_a_host, 1, fusion_types::apart},
            .coordination = {.by = coordination::identity::name, .cache = 1024}};
  }
};

/// Horovod with its defaults before v0.21: cycles of 5 ms and buffers of 64 MiB.
struct HorovodBefore021 {
  static constexpr std::string_view name = "HorovodBefore021";
  static constexpr std::string_view after =
      "Sergeev and Del Balso, \"Horovod\", 2018, before v0.21";
  static constexpr std::string_view deviations = "The same as Horovod's.";
  using strategy = Horovod::strategy;
  static constexpr policy_options<strategy> defaults(std::size_t on_a_host = 1) {
    auto its = Horovod::defaults(on_a_host);
    its.fusion.bytes = 64_MiB;
    its.fusion.cycle = 5e-3;
    return its;
  }
};

}  // namespace tutti::strategies
