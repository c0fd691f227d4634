#pragma once

#include <string_view>

#include "tutti/architecture/parameter_server.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/threshold.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/partition/over_servers.hpp"
#include "tutti/schedule/by_priority.hpp"

namespace tutti::strategies {

/// Servers add what all workers have pushed, update once, and hand out parameters. The layers
/// nearest the input go first. A tensor of a million elements or more has a part on each server.
/// Any other tensor is on the server of its key, 9973 times its place in forward order.
struct MXNetDistSync {
  static constexpr std::string_view name = "MXNetDistSync";
  static constexpr std::string_view after = "MXNet's kvstore `dist_sync`";
  static constexpr std::string_view deviations =
      "Every rank is a worker, there the devices of a machine together are; servers apply the "
      "mean, MXNet's the sum, and leave its 1/n to the optimizer's `rescale_grad`.";
  using strategy =
      compose<partition::over_servers, schedule::by_priority,
              architecture::parameter_server<consistency::synchronous, updated_by::servers>>;
  static constexpr policy_options<strategy> defaults() {
    return {.partition = {.bound = 1'000'000},
            .schedule = {.credit = 0},
            .architecture = {.placed_by = architecture::placed_by::kvstore}};
  }
};

/// MXNetDistSync with compressed pushes: each element is pushed as -threshold, 0 or threshold, and
/// the rest is kept for later steps. Parameters come back whole.
struct MXNet2Bit {
  static constexpr std::string_view name = "MXNet2Bit";
  static constexpr std::string_view after =
      "MXNet's kvstore `dist_sync` after `set_gradient_compression({'type': '2bit'})`";
  static constexpr std::string_view deviations =
      "As MXNetDistSync's; and a part's end is that of a word of 16 codes, the next one where "
      "MXNet rounds to the nearest.";
  using strategy =
      compose<partition::over_servers, schedule::by_priority,
              compression::error_feedback<compression::two_bit>,
              architecture::parameter_server<consistency::synchronous, updated_by::servers>>;
  static constexpr policy_options<strategy> defaults() {
    return {.partition = {.bound = 1'000'000},
            .schedule = {.credit = 0},
            .compression = {.threshold = 0.5f},
            .architecture = {.placed_by = architecture::placed_by::kvstore}};
  }
};

/// MXNetDistSync, but servers update at every push.
struct MXNetDistAsync {
  static constexpr std::string_view name = "MXNetDistAsync";
  static constexpr std::string_view after = "MXNet's kvstore `dist_async`";
  static constexpr std::string_view deviations =
      "Every rank is a worker, there the devices of a machine together are.";
  using strategy =
      compose<partition::over_servers, schedule::by_priority,
              architecture::parameter_server<consistency::asynchronous, updated_by::servers>>;
  static constexpr policy_options<strategy> defaults() {
    return {.partition = {.bound = 1'000'000},
            .schedule = {.credit = 0},
            .architecture = {.placed_by = architecture::placed_by::kvstore}};
  }
};

}  // namespace tutti::strategies
