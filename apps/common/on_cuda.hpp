#pragma once

#include <string_view>

#include "common/job.hpp"
#include "models/cudnn.hpp"
#include "tutti/base/cuda/error.hpp"
#include "tutti/transport/in_process_cuda.hpp"

namespace common {

/// Ranks are threads of this process that share its first GPU.
struct on_cuda {
  static constexpr std::string_view name = "cuda";

  /// Throws flag_error if the job cannot run here.
  static void expect(const job& asked) {
    if (uses_mpi(asked)) {
      throw flag_error(
          "ranks on a GPU are threads of one process. Fix: leave mpirun and --transport mpi out");
    }
    if (tutti::cuda::devices() == 0) {
      throw flag_error("no CUDA device is here. Fix: run on a machine with a GPU and its driver");
    }
  }

  /// Calls `body(world)` on every rank, `servers` beside the job's workers.
  template <class Body>
  static void run(const job& asked, int servers, Body body) {
    tutti::transport::run_ranks<tutti::transport::in_process_cuda>(asked.workers() + servers, body);
  }
};

}  // namespace common
