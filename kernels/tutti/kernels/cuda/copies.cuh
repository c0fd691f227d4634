#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "tutti/base/cuda/stream.hpp"
#include "tutti/kernels/copies.hpp"

// The definition of what copies.hpp declares for a cuda::stream.
namespace tutti::kernels {

namespace device {

static __global__ void copy_some(element::copy_pieces all) {
  for (std::size_t piece = blockIdx.x; piece < all.pieces(); piece += gridDim.x) {
    all(piece, threadIdx.x, blockDim.x);
  }
}

}  // namespace device

[[gnu::used]] inline void copy_runs(cuda::stream& queue, std::span<const copy_run> runs) {
  const cuda::on_device here(queue.device());
  for (; !runs.empty(); runs = runs.subspan(std::min(runs.size(), element::copy_pieces::most))) {
    const element::copy_pieces all(runs.first(std::min(runs.size(), element::copy_pieces::most)));
    if (all.pieces() != 0) {
      const auto blocks = static_cast<unsigned>(std::min(all.pieces(), cuda::detail::most_blocks));
      device::copy_some<<<blocks, cuda::detail::threads_a_block, 0, queue.native_handle()>>>(all);
      cuda::check(cudaGetLastError());
    }
  }
}

}  // namespace tutti::kernels
