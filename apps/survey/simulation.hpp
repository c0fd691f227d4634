#pragma once

#include <cstddef>

#include "models/replayed/replayed.hpp"
#include "survey/measured.hpp"
#include "tutti/base/units.hpp"

namespace survey {

/// Returns a DNN with the times of one of the survey's GPUs, a third of them for the forward pass.
const models::replayed& model(dnn which);

/// The cost of one all-reduce of a gradient between a given number of workers, while no other is
/// under way.
struct all_reduce_cost {
  tutti::seconds startup{};
  double seconds_per_byte{};

  tutti::seconds of(double bytes) const { return startup + seconds_per_byte * bytes; }
};

/// Workers that train one DNN, with the cost of their all-reduces.
struct job {
  const models::replayed* model{};
  int workers{};
  all_reduce_cost cost{};
  /// The share by which computing takes longer while the worker communicates.
  double slowdown{};
  /// All-reduces that may be under way at the same time. The survey's methods have one.
  std::size_t exchanges{1};
};

/// Returns how long an iteration takes with rings over hosts of `per_host` workers. The NICs have
/// the rate and the latency that give an all-reduce the job's cost. Communication inside a host and
/// kernels take no time. Throws tutti::usage_error if no NIC gives that cost.
tutti::seconds simulate(method how, const job& of);

}  // namespace survey
