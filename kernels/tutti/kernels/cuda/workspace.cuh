#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "tutti/kernels/adaptive_sum.hpp"
#include "tutti/kernels/cuda/adaptive_sum.cuh"
#include "tutti/kernels/cuda/copies.cuh"
#include "tutti/kernels/cuda/each.cuh"
#include "tutti/kernels/cuda/selection.cuh"
#include "tutti/kernels/low_rank.hpp"
#include "tutti/kernels/workspace.hpp"

// The definition of what workspace.hpp declares for a cuda::stream.
namespace tutti::kernels {

/// Of CUB's sums, the inner products take most room: three partial sums for each of the blocks that
/// a device runs at once.
[[gnu::used]] inline void reserve(cuda::stream& queue, std::size_t elements) {
  const cuda::on_device here(queue.device());
  const std::span<const float> any(static_cast<const float*>(nullptr), elements);
  device::workspace(
      queue,
      std::max({cuda::detail::storage_of(device::inner_products_of(queue, any, any, nullptr)),
                device::workspace_of_selection(elements), device::workspace_of_copies(queue),
                detail::most_partial_sums * sizeof(double)}));
}

}  // namespace tutti::kernels
