#pragma once

#include <vector>

#include "tutti/adapter/torch.hpp"
#include "tutti/transport/mpi.hpp"
#include "tutti_torch/binding.hpp"

namespace tutti_torch {

/// The transports of a model in host memory: one for gradients, and one for everything else.
class on_host {
 public:
  using transport = tutti::transport::mpi;
  explicit on_host(const std::vector<tutti::adapter::named_parameter>&) {}

  transport& world() { return world_; }
  transport& beside() { return beside_; }

 private:
  transport world_{};
  transport beside_{};
};

}  // namespace tutti_torch
