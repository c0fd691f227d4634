// Processes that connect by MPI and train over NCCL, each on a device of its own or all on one. The
// results are those of threads on a CPU. Without a device the program says so and counts as
// skipped.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "gpu/processes.hpp"
#include "tutti/base/cuda/error.hpp"
#include "tutti/base/cuda/stream.hpp"
#include "tutti/strategies/ef_sign_sgd.hpp"
#include "tutti/strategies/horovod.hpp"
#include "tutti/strategies/top_k.hpp"
#include "tutti/transport/mpi.hpp"
#include "tutti/transport/nccl.hpp"

using tutti::test::difference;

int main() {
  tutti::transport::mpi processes;
  const int devices = tutti::cuda::devices();
  if (devices == 0) {
    std::printf("rank %d: no CUDA device, nothing run\n", processes.rank());
    return 77;  // CTest reports it as skipped
  }
  if (devices < processes.size()) {  // so that NCCL takes them for processes of different hosts
    ::setenv("NCCL_HOSTID", std::to_string(processes.rank()).c_str(), 1);
  }
  // example-begin nccl
  tutti::cuda::check(cudaSetDevice(processes.rank() % devices));
  tutti::transport::nccl<tutti::transport::mpi> world(processes);
  // example-end
  // Every rank takes part in every strategy, or ranks with an exact result would wait for one
  // without.
  const float horovod = difference<tutti::strategies::Horovod>(world);
  const float top_k = difference<tutti::strategies::TopK>(world);
  const float ef_sign = difference<tutti::strategies::EFSignSGD>(world);
  // Means of magnitudes may be floats next to the host's.
  return horovod == 0.0f && top_k == 0.0f && ef_sign < 1e-5f ? 0 : 1;
}
