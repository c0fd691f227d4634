#pragma once

#include <cstddef>

#include "tutti/base/queue.hpp"

namespace tutti::kernels {

/// Makes room on a queue for what kernels of this library work in beside their callers' scratch,
/// where none takes more than so many elements, so that no step makes any.
template <host_queue Queue>
void reserve(Queue&, std::size_t) {}
/// CUB says what its algorithms need on the stream's device.
/// Cost: about a hundredth of the elements' bytes, and a megabyte for histograms; shared by all
/// kernels of the stream. Where the stream has less, this waits for the device.
void reserve(cuda::stream& queue, std::size_t elements);

}  // namespace tutti::kernels
