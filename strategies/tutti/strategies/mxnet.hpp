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
      "Every rank is a worker, where in MXNet all devices of a machine together are one; servers "
      "apply the mean, where MXNet's apply the sum and leave the 1/n to the optimizer's "
      "`rescale_grad`.";
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
      "The same as MXNetDistSync's; in addition, the end of a part is rounded up to a whole word "
      "of 16 codes, where MXNet rounds to the nearest word.";
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
      "Every rank is a worker, where in MXNet all devices of a machine together are one.";
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
