#pragma once

#include <cstddef>

#include "tutti/base/cuda/stream.hpp"
#include "tutti/base/host_stream.hpp"

namespace tutti::test {

/// What does a stream's work where there is no device.
host_stream& stood_in_by(cudaStream_t handle);

/// Calls so far that a step must not make: each would stop the host or the whole device.
struct dear_calls {
  long allocations{};
  long events{};
  long synchronizations{};
};
dear_calls dear_calls_so_far();

/// Streams that were created and not yet destroyed.
std::size_t streams_alive();

/// A device without memory for anybody, while it lives.
class no_memory_left {
 public:
  no_memory_left();
  no_memory_left(const no_memory_left&) = delete;
  no_memory_left& operator=(const no_memory_left&) = delete;
  ~no_memory_left();
};

}  // namespace tutti::test
