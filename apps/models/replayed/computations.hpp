#pragma once

#include <vector>

#include "models/replayed/replayed.hpp"
#include "tutti/core/replay.hpp"

namespace models {

/// Returns the network's tensors and times as `tutti::replay` takes them.
inline std::vector<tutti::computation> computations(const replayed& network) {
  std::vector<tutti::computation> all;
  for (const auto& each : network.tensors) {
    all.push_back(
        {each.name, each.elements, each.forward_seconds, each.backward_seconds, each.shape});
  }
  return all;
}

}  // namespace models
