#pragma once

#include "tutti/base/cuda/stream.hpp"
#include "tutti/base/host_stream.hpp"

namespace tutti::test {

/// What does a stream's work where there is no device.
host_stream& stood_in_by(cuda::stream& queue);

/// Calls so far that a step must not make: each would stop the host or the whole device.
struct dear_calls {
  long allocations{};
  long events{};
  long synchronizations{};

  friend bool operator==(const dear_calls&, const dear_calls&) = default;
};
dear_calls dear_calls_so_far();

}  // namespace tutti::test
