#pragma once

#include <functional>

#include "common/job.hpp"
#include "tutti/core/replay.hpp"
#include "tutti/transport/network.hpp"
#include "tutti/transport/simulated.hpp"
#if __has_include(<mpi.h>)
#include "tutti/transport/mpi.hpp"
#include "tutti/transport/shaped.hpp"
#endif

namespace compare {

/// Calls `run` in each of the processes that a launcher started, or in the only one. What one
/// cannot survive ends all.
void together(const std::function<void()>& run);

/// This process tells what all have found: the first.
bool speaks();

/// What moves an emulation's messages, as rows name it.
const char* emulated_by();

/// Seconds that `run` takes in the first process while the first `ranks` run it, which begin
/// together: the median of some. Collective, and every process has called `run`.
tutti::seconds median_seconds(int ranks, const std::function<void()>& run);

#if __has_include(<mpi.h>)
/// Calls `run` with their communicator in the first `ranks` processes. Throws common::flag_error if
/// there are less. The others nap until these have ended.
void among(int ranks, const std::function<void(MPI_Comm)>& run);
#endif

/// Runs a replay in real time: all ranks on this thread, or under a launcher each in a process.
/// Only the first process has its result.
template <class Strategy>
tutti::transport::emulated_run emulate(const tutti::transport::network& over,
                                       tutti::transport::device each,
                                       tutti::replay<Strategy>& job) {
#if __has_include(<mpi.h>)
  using tutti::transport::mpi;
  if (common::under_launcher()) {
    tutti::transport::emulated_run result;
    among(over.ranks(), [&](MPI_Comm some) {
      mpi carrier(some);
      result = tutti::transport::run_shaped(
          carrier, over, each, [&](tutti::transport::shaped<mpi>& world) { return job(world); });
    });
    return result;
  }
#endif
  return tutti::transport::run_emulated(
      over, each, [&](tutti::transport::simulated& world) { return job(world); });
}

}  // namespace compare
