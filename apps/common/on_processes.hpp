#pragma once

#include <exception>
#include <string>

#include "common/job.hpp"
#include "common/launcher.hpp"
#include "tutti/base/sentence.hpp"
#if __has_include(<mpi.h>)
#include "tutti/transport/mpi.hpp"
#endif

namespace common {

/// Throws flag_error if the job asks for MPI and this build has none.
inline void expect_processes([[maybe_unused]] const job& asked) {
#if !__has_include(<mpi.h>)
  if (uses_mpi(asked)) {
    throw flag_error("this build has no MPI. Fix: apt-get install libopenmpi-dev");
  }
#endif
}

#if __has_include(<mpi.h>)
/// Calls `body(world)` on this process, one of the MPI processes that a launcher started. Gradients
/// lie where `Queue` works, in host memory or on a GPU. If `body` throws, all processes of the job
/// are ended with its message. Throws flag_error if the launcher started another number of
/// processes than the flags say.
template <class Queue, class Body>
void run_process(const job& asked, int servers, Body body) {
  // Checked before MPI starts, so that every process reports the wrong flag as it would any other.
  if (asked.ranks && *asked.ranks + servers != launched()) {
    throw flag_error(tutti::sentence(
        {"--ranks ", *asked.ranks, " and ", servers, " servers are not the ", launched(),
         " ranks that were started. Fix: mpirun -np ", *asked.ranks + servers,
         under_launcher() ? ", or leave --ranks out" : ", or leave --transport out"}));
  }
  tutti::transport::mpi_on<Queue> world;
  expect_company(world.size());
  try {
    body(world);
  } catch (const std::exception& failed) {
    world.abort_job(failed.what());  // because other ranks may wait for this one
  }
}
#endif

}  // namespace common
