#pragma once

#include <cstddef>

#include "models/replayed/replayed.hpp"
#include "survey/measured.hpp"
#include "tutti/base/units.hpp"

namespace survey {

/// A DNN as one of the survey's GPUs computes it, a third of the time forward.
const models::replayed& model(dnn which);

/// What one all-reduce of a gradient takes, between so many workers and with nothing beside it.
struct all_reduce_cost {
  tutti::seconds startup{};
  double seconds_per_byte{};

  tutti::seconds of(double bytes) const { return startup + seconds_per_byte * bytes; }
};

/// Workers that train one DNN.
struct job {
  const models::replayed* model{};
  int workers{};
  all_reduce_cost cost{};
  /// Computing takes so much longer, as a share, while the worker communicates.
  double slowdown{};
  /// All-reduces that may be on their way at once; the survey's methods have one.
  std::size_t exchanges{1};
};

/// How long an iteration takes: rings over hosts of `per_host` workers, whose NICs have the rate
/// and the latency that make an all-reduce cost what the job says. Inside a host and on the device
/// nothing takes time but the model. Throws tutti::usage_error where no NIC could cost that.
tutti::seconds simulate(method how, const job& of);

}  // namespace survey
