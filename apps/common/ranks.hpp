#pragma once

#include <exception>

#include "common/job.hpp"
#include "tutti/transport/in_process.hpp"
#if __has_include(<mpi.h>)
#include "tutti/transport/mpi.hpp"
#else
#include "tutti/base/error.hpp"
#endif

namespace common {

/// Calls `body(world)` on every rank: as threads of this process, `servers` beside the job's
/// workers, or as the MPI processes that a launcher started.
template <class Body>
void on_ranks(const job& asked, int servers, Body body) {
  const bool mpi = asked.transport == "mpi" || (asked.transport == "automatic" && under_launcher());
  if (!mpi) {
    tutti::transport::run_ranks(asked.ranks + servers, body);
    return;
  }
#if __has_include(<mpi.h>)
  tutti::transport::mpi world;
  try {
    body(world);
  } catch (const std::exception& failed) {
    world.abort_job(failed.what());  // peers that wait for this rank must not wait for ever
  }
#else
  throw tutti::usage_error("this build has no MPI. Fix: apt-get install libopenmpi-dev");
#endif
}

}  // namespace common
