#pragma once

#include <vector>

#include "tutti/adapter/torch.hpp"
#include "tutti/adapter/torch_cuda.hpp"
#include "tutti/base/cuda/error.hpp"
#include "tutti/transport/mpi.hpp"
#include "tutti/transport/nccl.hpp"
#include "tutti_torch/binding.hpp"

namespace tutti_torch {

/// Transports of a model that lies on a GPU, that of its first parameter which does: gradients
/// travel by NCCL, and MPI, which need not know of GPUs, carries the rest. Seen on one
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
