#pragma once

#include <cstddef>

#include "tutti/base/queue.hpp"

namespace tutti::kernels {

/// Makes room on a queue for what kernels of this library work in beside their callers' scratch,
/// for kernels of at most `elements` elements, so that no step allocates. On a host they need none.
template <host_queue Queue>
void reserve(Queue&, std::size_t) {}
/// Asks CUB how much its algorithms need on the stream's device. All of the stream's kernels share
/// this room. Waits for the device if the stream's room has to grow.
void reserve(cuda::stream& queue, std::size_t elements);

}  // namespace tutti::kernels
