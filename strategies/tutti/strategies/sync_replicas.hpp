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
      "Tokens are each worker's own, as in the paper, and each chunk's; TensorFlow's are taken "
      "from "
      "one queue by whoever comes first, so that there a fast worker may compute a step twice. It "
      "has as many tokens as gradients at the beginning, here only where those are more than "
      "workers.";
  using strategy =
      compose<architecture::parameter_server<consistency::backup_workers, updated_by::servers>>;
  static constexpr policy_options<strategy> defaults() {
    return {.architecture = {.placed_by = architecture::placed_by::round_robin}};
  }
};

}  // namespace tutti::strategies
