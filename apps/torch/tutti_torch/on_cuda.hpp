#pragma once

#include "tutti/base/cuda/error.hpp"
#include "tutti/transport/mpi.hpp"
#include "tutti/transport/nccl.hpp"
#include "tutti_torch/trainer_of.hpp"

namespace tutti_torch {

/// The transports of a model on a GPU. NCCL carries gradients. MPI, which need not support GPUs,
/// carries the rest. It has run only on one GPU that two ranks shared.
class on_cuda {
 public:
  using transport = tutti::transport::nccl<tutti::transport::mpi>;
  using queue = transport::queue_type;
  explicit on_cuda(int device) : world_(made(carrier_, device)) {}

  transport& world() { return world_; }
  tutti::transport::mpi& beside() { return beside_; }

 private:
  static transport made(tutti::transport::mpi& carrier, int device) {
    const tutti::cuda::on_device here(device);
    return transport(carrier);
  }

  tutti::transport::mpi carrier_{};
  tutti::transport::mpi beside_{};
  transport world_;
};

}  // namespace tutti_torch
