#pragma once

#include <cstddef>

#include "tutti/base/cuda/stream.hpp"
#include "tutti/base/host_stream.hpp"

namespace tutti::test {

/// Returns the host stream that does a CUDA stream's work where there is no device.
host_stream& stood_in_by(cudaStream_t handle);

/// Counts of calls so far that a step must not make, because each would block the host or the whole
/// device.
struct dear_calls {
  long allocations{};
  long events{};
  long synchronizations{};
};
dear_calls dear_calls_so_far();

/// Returns the number of streams that were created and not yet destroyed.
std::size_t streams_alive();

/// Returns whether any thread has made the device current since `forget_devices_made_current`. On a
/// real one the process would then have a context, which takes some of the device's memory.
bool was_made_current(int device);
void forget_devices_made_current();

/// While an object of this class lives, the device has no memory left.
class no_memory_left {
 public:
  no_memory_left();
  no_memory_left(const no_memory_left&) = delete;
  no_memory_left& operator=(const no_memory_left&) = delete;
  ~no_memory_left();
};

}  // namespace tutti::test
