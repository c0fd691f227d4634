#pragma once

#include <string_view>

#include "common/job.hpp"
#include "common/launcher.hpp"
#include "common/on_processes.hpp"
#include "models/cudnn.hpp"
#include "tutti/base/cuda/error.hpp"
#include "tutti/base/cuda/stream.hpp"
#include "tutti/transport/in_process_cuda.hpp"

namespace common {

/// Runs a job's ranks on GPUs: as threads of this process that share its first GPU, or as the MPI
/// processes that a launcher started, which are assigned to the GPUs of their host in turn.
struct on_cuda {
  static constexpr std::string_view name = "cuda";

  /// Throws flag_error if the job cannot run here.
  static void expect(const job& asked) {
    expect_processes(asked);
    if (tutti::cuda::devices() == 0) {
      throw flag_error("no CUDA device is here. Fix: run on a machine with a GPU and its driver");
    }
  }

  /// Calls `body(world)` on every rank. If ranks are threads, it starts the job's workers and
  /// `servers` more. If they are processes, the launcher has started all of them.
  template <class Body>
  static void run(const job& asked, int servers, Body body) {
    if (!uses_mpi(asked)) {
      tutti::transport::run_ranks<tutti::transport::in_process_cuda>(asked.workers() + servers,
                                                                     body);
      return;
    }
#if __has_include(<mpi.h>)
    tutti::cuda::check(cudaSetDevice(number_on_host() % tutti::cuda::devices()));
    run_process<tutti::cuda::stream>(asked, servers, body);
#endif
  }
};

}  // namespace common
