#pragma once

#include <vector>

#include "tutti/adapter/torch.hpp"
#include "tutti/adapter/torch_cuda.hpp"
#include "tutti/base/cuda/error.hpp"
#include "tutti/transport/mpi.hpp"
#include "tutti/transport/nccl.hpp"
#include "tutti_torch/binding.hpp"

namespace tutti_torch {

/// The transports of a model on a GPU, the GPU of its first parameter that lies on one. NCCL
/// carries gradients. MPI, which need not support GPUs, carries the rest. It has run only on one
/// GPU that two ranks shared.
class on_cuda {
 public:
  using transport = tutti::transport::nccl<tutti::transport::mpi>;
  explicit on_cuda(const std::vector<tutti::adapter::named_parameter>& parameters)
      : world_(made(carrier_, parameters)) {}

  transport& world() { return world_; }
  tutti::transport::mpi& beside() { return beside_; }

 private:
  static transport made(tutti::transport::mpi& carrier,
                        const std::vector<tutti::adapter::named_parameter>& parameters) {
    int device = 0;
    for (const auto& each : parameters) {
      if (each.value.is_cuda()) {
        device = each.value.get_device();
        break;
      }
    }
    const tutti::cuda::on_device here(device);
    return transport(carrier);
  }

  tutti::transport::mpi carrier_{};
  tutti::transport::mpi beside_{};
  transport world_;
};

}  // namespace tutti_torch
