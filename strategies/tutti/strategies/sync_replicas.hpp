#pragma once

#include <string_view>

#include "tutti/architecture/parameter_server.hpp"
#include "tutti/core/compose.hpp"

namespace tutti::strategies {

/// A step is the mean of the gradients that come first: of all workers but `backups`, which is 0 by
/// default. Later gradients are dropped. Variables go round the servers in the order of their
/// declaration.
struct SyncReplicas {
  static constexpr std::string_view name = "SyncReplicas";
  static constexpr std::string_view after =
      "Chen et al., \"Revisiting distributed synchronous SGD\", 2016; TensorFlow's "
      "SyncReplicasOptimizer";
  static constexpr std::string_view deviations =
      "Each worker has its own tokens, as in the paper, and separate ones for each chunk; "
      "TensorFlow's workers take them from one queue, first come, first served, so that a fast "
      "worker may compute a step twice. TensorFlow begins with as many tokens as it waits for "
      "gradients, tutti only if these outnumber the workers.";
  using strategy =
      compose<architecture::parameter_server<consistency::backup_workers, updated_by::servers>>;
  static constexpr policy_options<strategy> defaults() {
    return {.architecture = {.placed_by = architecture::placed_by::round_robin}};
  }
};

}  // namespace tutti::strategies
