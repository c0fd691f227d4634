#pragma once

#include <string_view>

#include "tutti/architecture/parameter_server.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/schedule/by_priority.hpp"

namespace tutti::strategies {

/// Pushes slices of 40,000 elements, the most urgent first, to one server after the other; workers
/// update.
struct P3 {
  static constexpr std::string_view name = "P3";
  static constexpr std::string_view after =
      "Jayarajan et al., \"Priority-based Parameter Propagation\", MLSys 2019, and MXNet's "
      "kvstore over the van `p3`";
  static constexpr std::string_view deviations =
      "At most the bytes of ten full slices may wait to be sent from a rank to all servers "
      "together, and no slice overtakes the most urgent one while it waits for room; in the "
      "original ten slices of any size may wait for each server, as its launcher sets, and one "
      "thread sends them.";
  using strategy =
      compose<partition::into, schedule::by_priority, architecture::parameter_server<>>;
  static constexpr policy_options<strategy> defaults() {
    return {.partition = {.bytes = 160'000},
            .schedule = {.credit = 1'600'000, .rule = schedule::credit_rule::positive},
            .architecture = {.placed_by = architecture::placed_by::round_robin}};
  }
};

}  // namespace tutti::strategies
