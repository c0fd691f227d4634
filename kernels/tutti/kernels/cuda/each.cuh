#pragma once

#include <cstddef>

#include "tutti/base/cuda/stream.hpp"
#include "tutti/kernels/elements.hpp"

namespace tutti::kernels::device {

template <int Width, class F, class... Arrays>
__global__ void share_elements(std::size_t n, F f, Arrays... arrays) {
  const std::size_t thread = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  share_of<Width>(thread, std::size_t{gridDim.x} * blockDim.x, n, f, arrays...);
}

template <int Width, class F, class... Arrays>
void launch_each(cuda::stream& queue, std::size_t n, const F& f, Arrays... arrays) {
  namespace launch = cuda::detail;
  const unsigned blocks = launch::blocks_for((n + Width - 1) / Width);
  share_elements<Width>
      <<<blocks, launch::threads_a_block, 0, queue.native_handle()>>>(n, f, arrays...);
  cuda::check(cudaGetLastError());
}

/// Calls `f(arrays[i]...)` for every i in [0, n), on registers that are loaded from the arrays and
/// stored where those may be written. Sixteen bytes at a time where all arrays allow it.
template <class F, class... Arrays>
void each(cuda::stream& queue, std::size_t n, const F& f, Arrays... arrays) {
  if (n == 0) {
    return;
  }
  const cuda::on_device here(queue.device());
  constexpr int width = pack_width<Arrays...>();
  if (aligned_for<width>(arrays...)) {
    launch_each<width>(queue, n, f, arrays...);
  } else {
    launch_each<1>(queue, n, f, arrays...);
  }
}

}  // namespace tutti::kernels::device
