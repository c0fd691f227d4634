// expect: tutti: this functor must be compiled for a device, and this file is compiled for the host alone. Fix: compile it with nvcc, or call a function of tutti::kernels, which are compiled already.
#include <cstddef>

#include "tutti/base/cuda/stream.hpp"

#ifdef GOOD
using queue_type = tutti::inline_queue;
#else
using queue_type = tutti::cuda::stream;
#endif

void halve(queue_type& queue, float* values, std::size_t n) {
  queue.for_each(n, [=](std::size_t i) { values[i] *= 0.5f; });
}
