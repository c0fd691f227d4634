#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tutti/base/cuda/stream.hpp"
#include "tutti/kernels/blocks.hpp"
#include "tutti/kernels/elements.hpp"
#include "tutti/kernels/selection_steps.hpp"

/// How work gets onto a device's threads: nvcc's part of the kernels. They are the same text over
/// any launcher, so that a host that stands for a device runs it too.
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

/// Sixteen threads of the 32 that do everything at once.
struct lanes_of_block {
  template <class T>
  struct of_lanes {
    T mine;
    __device__ T& operator[](std::size_t) { return mine; }
  };

  std::size_t lane;
  unsigned together;  // a bit for each of them

  template <class F>
  __device__ void each(const F& f) const {
    f(lane);
  }
  template <class F>
  __device__ std::uint32_t largest(const F& f) const {
    std::uint32_t found = f(lane);
    for (int apart = block_lanes / 2; apart > 0; apart /= 2) {
      found = max(found, __shfl_xor_sync(together, found, apart));
    }
    return found;
  }
  template <class F>
  __device__ double add_up(const F& f) const {
    const double mine = f(lane);
    double total = 0;
    for (int from = 0; from < static_cast<int>(block_lanes); ++from) {
      total += __shfl_sync(together, mine, from, block_lanes);
    }
    return total;
  }
};

template <class F>
__global__ void __launch_bounds__(cuda::detail::threads_a_block, 4)
    share_blocks(std::size_t blocks, F f) {
  const lanes_of_block lanes{threadIdx.x % block_lanes, 0xffffu << (threadIdx.x & 16u)};
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x / block_lanes;
  const std::size_t thread = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (std::size_t number = thread / block_lanes; number < blocks; number += stride) {
    f(lanes, number);
  }
}

/// Calls `f(lanes, number)` for every block of elements.
template <class F>
void for_each_block(cuda::stream& queue, std::size_t blocks, const F& f) {
  if (blocks == 0) {
    return;
  }
  namespace launch = cuda::detail;
  const cuda::on_device here(queue.device());
  share_blocks<<<launch::blocks_for(blocks * block_lanes), launch::threads_a_block, 0,
                 queue.native_handle()>>>(blocks, f);
  cuda::check(cudaGetLastError());
}

/// A block of threads that take a step of a selection.
struct block_of_threads {
  struct warp {
    template <class T>
    struct of_lanes {
      T mine;
      __device__ T& operator[](std::uint32_t) { return mine; }
    };

    template <class F>
    __device__ std::uint32_t ballot(const F& f) const {
      return __ballot_sync(~0u, f(threadIdx.x % steps::lanes));
    }
    template <class F>
    __device__ void each(const F& f) const {
      f(threadIdx.x % steps::lanes);
    }
  };
  template <class T>
  using of_threads = warp::of_lanes<T>;

  std::uint32_t number;
  std::uint32_t count;

  template <class F>
  __device__ void each(const F& f) const {
    f(threadIdx.x);
    __syncthreads();
  }
  template <class F>
  __device__ void each_warp(const F& f) const {
    f(warp{}, threadIdx.x / steps::lanes);
    __syncthreads();
  }
};

template <class Step>
__global__ void __launch_bounds__(steps::threads, Step::min_blocks_per_sm) take_step(Step step) {
  __shared__ alignas(16) unsigned char shared[sizeof(typename Step::memory)];
  step(block_of_threads{blockIdx.x, gridDim.x}, *reinterpret_cast<typename Step::memory*>(shared));
}

/// Calls `step(block, shared memory)` on so many blocks.
template <class Step>
void on_blocks(cuda::stream& queue, std::size_t blocks, const Step& step) {
  if (blocks == 0) {
    return;
  }
  const cuda::on_device here(queue.device());
  take_step<<<static_cast<unsigned>(blocks), steps::threads, 0, queue.native_handle()>>>(step);
  cuda::check(cudaGetLastError());
}

}  // namespace tutti::kernels::device
