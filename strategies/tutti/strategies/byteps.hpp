#pragma once

#include <cstddef>
#include <string_view>

#include "tutti/architecture/parameter_server.hpp"
#include "tutti/base/units.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/all.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/schedule/at_end.hpp"
#include "tutti/schedule/by_priority.hpp"

namespace tutti::strategies {

/// Pushes pieces of 4,096,000 bytes, rounded up to whole pages for each rank of a host, the most
/// urgent first. Servers add them up, and workers update. The defaults are BytePS's: djb2 of a
/// piece's key chooses its server, and keys follow the tensors' names, in whose order its PyTorch
/// plugin declares gradients. A server has four threads, which do their work in the order in which
/// it comes; with `engine_order` `most_pushed` they follow the schedule that BytePS describes for
/// its servers. Credit is off, so nothing waits and nothing is sorted. `credit` counts pieces, as
/// `BYTEPS_SCHEDULING_CREDIT` does.
struct BytePS {
  static constexpr std::string_view name = "BytePS";
  static constexpr std::string_view after = "Jiang et al., \"BytePS\", OSDI 2020";
  static constexpr std::string_view deviations =
      "In BytePS the GPUs of a machine add up first, and one of them sends to the servers; in "
      "tutti every rank does. Credit returns when a piece has been pushed, in BytePS when those "
      "GPUs have added it up. The most urgent piece is what the next forward pass needs first, as "
      "in BytePS's MXNet plugin; its PyTorch plugin sets no urgency, and pieces go by key. Only "
      "the virtual clock has the server's threads and their order: over threads and MPI a server "
      "adds on one thread, as pushes arrive. The caller says how many ranks share a host.";
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

/// BytePS with BYTEPS_ENABLE_ASYNC: each worker takes an optimizer step of its own, and pushes how
/// much that has changed the parameters. Servers add it to their parameters, and answer with these.
struct BytePSAsync {
  static constexpr std::string_view name = "BytePSAsync";
  static constexpr std::string_view after =
      "Jiang et al., \"BytePS\", OSDI 2020, BYTEPS_ENABLE_ASYNC";
  static constexpr std::string_view deviations =
      "The same as BytePS's; in addition, there are no server threads, because in tutti they serve "
      "only sums over all workers.";
  using strategy =
      compose<partition::into, schedule::by_priority,
              architecture::parameter_server<consistency::asynchronous, updated_by::workers>>;
  static constexpr policy_options<strategy> defaults(std::size_t on_a_host = 1) {
    const auto its = BytePS::defaults(on_a_host);
    return {.partition = its.partition,
            .schedule = its.schedule,
            .architecture = {.placed_by = its.architecture.placed_by}};
  }
};

/// BytePS tensor by tensor, with eight threads on each server, as in Shi et al.'s survey, 2020:
/// `wfbpps`.
struct WFBPPS {
  static constexpr std::string_view name = "WFBPPS";
  static constexpr std::string_view after =
      "Shi et al., \"A Quantitative Survey of Communication Optimizations\", 2020, `wfbpps`";
  static constexpr std::string_view deviations = "The same as BytePS's.";
  using strategy = BytePS::strategy;
  static constexpr policy_options<strategy> defaults(std::size_t on_a_host = 1) {
    auto its = BytePS::defaults(on_a_host);
    its.architecture.engine_threads = 8;
    return its;
  }
};

/// WFBPPS, but with all gradients at once after the whole backward pass: the survey's `bspps`. It
/// is a BytePS of the authors' own, with a fusion threshold of 512 MiB, which held every model's
/// gradients.
struct BSPPS {
  static constexpr std::string_view name = "BSPPS";
  static constexpr std::string_view after =
      "Shi et al., \"A Quantitative Survey of Communication Optimizations\", 2020, `bspps`";
  static constexpr std::string_view deviations =
      "The same as BytePS's; in addition, the original's buffer ends at a fusion threshold of 512 "
      "MiB.";
  using strategy =
      compose<fusion::all, partition::into, schedule::at_end, architecture::parameter_server<>>;
  static constexpr policy_options<strategy> defaults(std::size_t on_a_host = 1) {
    const auto its = WFBPPS::defaults(on_a_host);
    return {.partition = its.partition, .architecture = its.architecture};
  }
};

/// WFBPPS with BYTEPS_SERVER_ENABLE_SCHEDULE: the survey's `byteschedulerps`. A server's threads
/// first take the piece that most workers have pushed, as BytePS's queue finds it.
struct ByteSchedulerPS {
  static constexpr std::string_view name = "ByteSchedulerPS";
  static constexpr std::string_view after =
      "Shi et al., \"A Quantitative Survey of Communication Optimizations\", 2020, "
      "`byteschedulerps`";
  static constexpr std::string_view deviations = "The same as BytePS's.";
  using strategy = BytePS::strategy;
  static constexpr policy_options<strategy> defaults(std::size_t on_a_host = 1) {
    auto its = WFBPPS::defaults(on_a_host);
    its.architecture.engine_order = architecture::engine_order::byteps;
    return its;
  }
};

}  // namespace tutti::strategies
