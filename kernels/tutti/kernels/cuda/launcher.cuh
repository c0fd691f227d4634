#pragma once

#include <algorithm>
#include <cstddef>

#include "tutti/base/cuda/stream.hpp"
#include "tutti/kernels/elements.hpp"

/// How work gets onto a device's threads: nvcc's part of the kernels, but for selection. The others
/// are the same text over any launcher, so that a host that stands for a device runs it too.
namespace tutti::kernels::device {

template <int Width, class F, class... Arrays>
__global__ void share_elements(std::size_t n, F f, Arrays... arrays) {
  const std::size_t thread = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  share_of<Width>(thread, std::size_t{gridDim.x} * blockDim.x, n, f, arrays...);
}

/// Calls `f(arrays[i]...)` for every i in [0, n), 0 < n: packs of `Width` neighbours where they are
/// whole.
template <int Width, class F, class... Arrays>
void share_out(cuda::stream& queue, std::size_t n, const F& f, Arrays... arrays) {
  namespace launch = cuda::detail;
  const cuda::on_device here(queue.device());
  const unsigned blocks = launch::blocks_for((n + Width - 1) / Width);
  share_elements<Width>
      <<<blocks, launch::threads_a_block, 0, queue.native_handle()>>>(n, f, arrays...);
  cuda::check(cudaGetLastError());
}

/// Calls `f(i)` for every i in [0, n).
template <class F>
void for_each(cuda::stream& queue, std::size_t n, const F& f) {
  queue.for_each(n, f);
}

/// Calls `finish(total)` with the sum of `term(i)` for i in [0, n), in the order of fixed_sum.
template <class Term, class Finish>
void add_up(cuda::stream& queue, std::size_t n, const Term& term, const Finish& finish) {
  const cuda::on_device here(queue.device());
  auto* partial = reinterpret_cast<double*>(queue.room().memory());
  cuda::check(cuda::detail::launch_sum(queue.native_handle(), n, term, partial, finish));
}

template <class F>
__global__ void share_pieces(std::size_t pieces, F f) {
  for (std::size_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    f(piece, threadIdx.x, blockDim.x);
  }
}

/// Calls `f(piece, thread, threads)` for each of some pieces, 0 < pieces, on all threads of a
/// block.
template <class F>
void for_each_piece(cuda::stream& queue, std::size_t pieces, const F& f) {
  namespace launch = cuda::detail;
  const cuda::on_device here(queue.device());
  const auto blocks = static_cast<unsigned>(std::min(pieces, launch::most_blocks));
  share_pieces<<<blocks, launch::threads_a_block, 0, queue.native_handle()>>>(pieces, f);
  cuda::check(cudaGetLastError());
}

}  // namespace tutti::kernels::device
