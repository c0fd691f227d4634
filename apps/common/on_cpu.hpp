#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "common/job.hpp"
#include "tutti/transport/in_process.hpp"
#if __has_include(<mpi.h>)
#include "tutti/transport/mpi.hpp"
#endif

namespace common {

/// Ranks of the host: threads of this process, or the MPI processes that a launcher started.
struct on_cpu {
  static constexpr std::string_view name = "cpu";

  /// Throws flag_error if the job cannot run here.
  static void expect(const job& asked) {
    if (asked.precision != "fp32") {
      throw flag_error("--precision " + asked.precision +
                       " cannot be on a CPU. Fix: leave it out, or --device cuda");
    }
#if !__has_include(<mpi.h>)
    if (uses_mpi(asked)) {
      throw flag_error("this build has no MPI. Fix: apt-get install libopenmpi-dev");
    }
#endif
  }

  /// Calls `body(world)` on every rank; as threads, they are `servers` beside the job's workers.
  template <class Body>
  static void run(const job& asked, int servers, Body body) {
    if (!uses_mpi(asked)) {
      tutti::transport::run_ranks(asked.workers() + servers, body);
      return;
    }
#if __has_include(<mpi.h>)
    tutti::transport::mpi world;
    try {
      if (asked.ranks && *asked.ranks + servers != world.size()) {
        throw tutti::usage_error("--ranks " + std::to_string(*asked.ranks) + " and " +
                                 std::to_string(servers) + " servers are not the " +
                                 std::to_string(world.size()) +
                                 " ranks that were started. Fix: leave --ranks out");
      }
      body(world);
    } catch (const std::exception& failed) {
      world.abort_job(failed.what());  // peers that wait for this rank must not wait for ever
    }
#endif
  }
};

}  // namespace common
