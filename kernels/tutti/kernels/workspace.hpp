#pragma once

#include <cstddef>

#include "tutti/base/queue.hpp"

namespace tutti::kernels {

/// Reserves the memory that kernels of this library need on a queue in addition to their callers'
/// scratch, so that no step allocates. It is enough for kernels of at most `elements` elements. On
/// a host they need none.
template <host_queue Queue>
void reserve(Queue&, std::size_t) {}
/// Asks CUB how much its algorithms need on the stream's device. All of the stream's kernels share
/// this room. Waits for the device if the stream's room has to grow.
void reserve(cuda::stream& queue, std::size_t elements);

}  // namespace tutti::kernels
