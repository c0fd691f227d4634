#pragma once

#include <string_view>

#include "tutti/architecture/parameter_server.hpp"
#include "tutti/core/compose.hpp"

namespace tutti::strategies {

/// Every worker has a copy of the variables, and servers have the master copy. On the servers each
/// worker's gradient is a step of its own, variable by variable. Once a variable has taken all
/// workers' steps, its new value goes to every copy. Variables go round the servers in the order of
/// their declaration.
struct DistributedReplicated {
  static constexpr std::string_view name = "DistributedReplicated";
  static constexpr std::string_view after =
      "tf_cnn_benchmarks, `--variable_update=distributed_replicated`; tensorpack's "
      "DistributedTrainerReplicated";
  static constexpr std::string_view deviations =
      "The original applies pushes in the order in which they arrive, tutti in rank order; with "
      "plain SGD both equal one step by the sum of gradients, up to rounding.";
  using strategy = compose<
      architecture::parameter_server<consistency::synchronous, updated_by::servers_by_push>>;
  static constexpr policy_options<strategy> defaults() {
    return {.architecture = {.placed_by = architecture::placed_by::round_robin}};
  }
};

/// Variables are on servers alone, and each worker's gradient is a step there. This is
/// tf_cnn_benchmarks' `--variable_update=parameter_server` with servers, and tensorpack's
/// DistributedTrainerParameterServer. A variable goes to the server that has the fewest bytes. In
/// these systems workers read variables in the next forward pass, but here each worker keeps the
/// values that have come back. Pushes step as under DistributedReplicated.
struct TFParameterServer {
  static constexpr std::string_view name = "TFParameterServer";
  static constexpr std::string_view after =
      "tf_cnn_benchmarks, `--variable_update=parameter_server` with servers; tensorpack's "
      "DistributedTrainerParameterServer";
  static constexpr std::string_view deviations =
      "In the original workers read variables in the next forward pass; in tutti each keeps the "
      "values that came back. Pushes are applied as by DistributedReplicated.";
  using strategy = DistributedReplicated::strategy;
  static constexpr policy_options<strategy> defaults() {
    return {.architecture = {.placed_by = architecture::placed_by::least_loaded}};
  }
};

/// The mean of all workers' gradients is one step on the device that has the variable, which is the
/// one that had the fewest bytes. This is `--variable_update=parameter_server` on one machine,
/// tf_cnn_benchmarks' default, and tensorpack's SyncMultiGPUTrainerParameterServer. The devices are
/// servers that share the workers' hosts.
struct TFLocalParameterServer {
  static constexpr std::string_view name = "TFLocalParameterServer";
  static constexpr std::string_view after =
      "tf_cnn_benchmarks, `--variable_update=parameter_server` on one machine; tensorpack's "
      "SyncMultiGPUTrainerParameterServer";
  static constexpr std::string_view deviations =
      "In the original workers read variables in the next forward pass; in tutti each keeps the "
      "values that came back.";
  using strategy =
      compose<architecture::parameter_server<consistency::synchronous, updated_by::servers>>;
  static constexpr policy_options<strategy> defaults() {
    return {.architecture = {.placed_by = architecture::placed_by::least_loaded}};
  }
};

}  // namespace tutti::strategies
