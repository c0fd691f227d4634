#pragma once

#include <functional>
#include <string_view>

#include "common/compiled.hpp"
#include "common/job.hpp"
#include "tutti/transport/any_transport.hpp"

namespace common {

/// Runs a job's ranks on CPUs: as threads of this process, or as the MPI processes that a launcher
/// started. Both are one type to what trains, so that a strategy is compiled once.
struct on_cpu {
  static constexpr std::string_view name = "cpu";

  /// Throws flag_error if the job cannot run here.
  static void expect(const job& asked);

  /// Calls `body(world)` on every rank. If ranks are threads, it starts the job's workers and
  /// `servers` more. If they are processes, the launcher has started all of them.
  static void run(const job& asked, int servers,
                  const std::function<void(tutti::transport::any_transport&)>& body);
};

}  // namespace common
