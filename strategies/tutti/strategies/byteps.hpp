#pragma once

#include <string_view>

#include "tutti/architecture/parameter_server.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/schedule/by_priority.hpp"

namespace tutti::strategies {

/// Pieces of 4,096,000 bytes, most urgent first, added up on servers; workers update. Its defaults:
/// credit is off; a piece's server is djb2 of its key, and keys go by the tensors' names, as its
/// PyTorch plugin declares gradients; a server has four threads, which take what comes as it comes
/// (`engine_order` `most_pushed`: its server's schedule).
struct BytePS {
  static constexpr std::string_view name = "BytePS";
  static constexpr std::string_view after = "Jiang et al., \"BytePS\", OSDI 2020";
  static constexpr std::string_view deviations =
      "There the GPUs of a machine add up first, and one of them speaks to servers; here "
      "every rank does. The server's threads and their order are the virtual clock's alone: "
      "over threads and MPI it adds on one, as pushes come.";
  using strategy =
      compose<partition::into, schedule::by_priority, architecture::parameter_server<>>;
  static constexpr policy_options<strategy> defaults() {
    return {.partition = {.bytes = 4'096'000},
            .schedule = {.credit = 0, .rule = schedule::credit_rule::fits},
            .architecture = {.placed_by = architecture::placed_by::djb2, .engine_threads = 4}};
  }
};

}  // namespace tutti::strategies
