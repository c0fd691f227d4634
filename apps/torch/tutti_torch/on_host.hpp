#pragma once

#include "tutti/transport/mpi.hpp"
#include "tutti_torch/trainer_of.hpp"

namespace tutti_torch {

/// The transports of a model in host memory: one for gradients, and one for everything else.
class on_host {
 public:
  using transport = tutti::transport::mpi;
  using queue = transport::queue_type;
  explicit on_host(int) {}

  transport& world() { return world_; }
  transport& beside() { return beside_; }

 private:
  transport world_{};
  transport beside_{};
};

}  // namespace tutti_torch
