#pragma once

#include <cstddef>
#include <string_view>

#include "tutti/architecture/parameter_server.hpp"
#include "tutti/base/units.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/schedule/by_priority.hpp"

namespace tutti::strategies {

/// Pieces of 4,096,000 bytes, rounded up to whole pages of each rank of a host, most urgent first,
/// added up on servers; workers update: Jiang et al., "BytePS", OSDI 2020. Its defaults: a piece's
/// server is djb2 of its key, and keys go by the tensors' names, as its PyTorch plugin declares
/// gradients; a server has four threads, which take what comes as it comes (`engine_order`
/// `most_pushed`: its server's schedule). Credit is off: nothing waits, so nothing is sorted. It is
/// counted in pieces (`BYTEPS_SCHEDULING_CREDIT`); there it comes back when a host's GPUs have
/// added up the piece, here when it has been pushed. Urgent is what the next forward pass needs
/// first, as its MXNet plugin says; its PyTorch plugin says nothing, and pieces go by their keys.
struct BytePS {
  static constexpr std::string_view name = "BytePS";
  using strategy =
      compose<partition::into, schedule::by_priority, architecture::parameter_server<>>;
  static constexpr policy_options<strategy> defaults(std::size_t on_a_host = 1,
                                                     std::size_t credit = 0) {
    const std::size_t piece = round_up(4'096'000, 4'096 * on_a_host);
    return {.partition = {.bytes = piece},
            .schedule = {.credit = credit * piece, .rule = schedule::credit_rule::fits},
            .architecture = {.placed_by = architecture::placed_by::djb2, .engine_threads = 4}};
  }
};

}  // namespace tutti::strategies
