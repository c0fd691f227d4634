#pragma once

#include <string_view>

#include "tutti/architecture/parameter_server.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/schedule/by_priority.hpp"

namespace tutti::strategies {

/// MXNet's kvstore `dist_sync`: servers add what all workers pushed, update once, and hand out
/// parameters; the layers nearest the input first.
struct MXNetDistSync {
  static constexpr std::string_view name = "MXNetDistSync";
  using strategy =
      compose<partition::into, schedule::by_priority,
              architecture::parameter_server<consistency::synchronous, updated_by::servers>>;
  static constexpr policy_options<strategy> defaults() {
    return {.partition = {.bytes = 4'000'000}, .schedule = {.credit = 0}};
  }
};

/// MXNet's kvstore `dist_async`: servers update at every push.
struct MXNetDistAsync {
  static constexpr std::string_view name = "MXNetDistAsync";
  using strategy =
      compose<partition::into, schedule::by_priority,
              architecture::parameter_server<consistency::asynchronous, updated_by::servers>>;
  static constexpr policy_options<strategy> defaults() {
    return {.partition = {.bytes = 4'000'000}, .schedule = {.credit = 0}};
  }
};

}  // namespace tutti::strategies
