#pragma once

#include <string_view>

#include "common/job.hpp"
#include "common/on_processes.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/transport/in_process.hpp"

namespace common {

/// Runs a job's ranks on CPUs: as threads of this process, or as the MPI processes that a launcher
/// started.
struct on_cpu {
  static constexpr std::string_view name = "cpu";

  /// Throws flag_error if the job cannot run here.
  static void expect(const job& asked) {
    if (asked.precision != "fp32") {
      throw flag_error("--precision " + asked.precision +
                       " cannot be on a CPU. Fix: leave it out, or --device cuda");
    }
    expect_processes(asked);
  }

  /// Calls `body(world)` on every rank. If ranks are threads, it starts the job's workers and
  /// `servers` more. If they are processes, the launcher has started all of them.
  template <class Body>
  static void run(const job& asked, int servers, Body body) {
    if (!uses_mpi(asked)) {
      tutti::transport::run_ranks(asked.workers() + servers, body);
      return;
    }
#if __has_include(<mpi.h>)
    run_process<tutti::inline_queue>(asked, servers, body);
#endif
  }
};

}  // namespace common
