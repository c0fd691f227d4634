#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tutti/base/cuda/stream.hpp"
#include "tutti/kernels/block_of_threads.hpp"
#include "tutti/kernels/blocks.hpp"

/// Starts kernels that are not CUB's on a device's threads. Only nvcc compiles this. The kernels
/// are the same code over any launcher, so that a host that stands in for a device runs them, too.
namespace tutti::kernels::device {

inline constexpr unsigned threads_a_block = 256;
/// Returns how many blocks to start for `threads` threads, but no more than any device runs at
/// once: their threads then do the work of several.
inline unsigned blocks_for(std::size_t threads, std::size_t a_block = threads_a_block) {
  constexpr std::size_t most = 16384;
  return static_cast<unsigned>(std::min(most, block_count(threads, a_block)));
}

template <class F>
__global__ void call_with_list(std::size_t n, const __grid_constant__ F f) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride) {
    f(i);
  }
}

/// Calls `f(i)` for every i in [0, n), where `f` holds a list. The list stays among the kernel's
/// parameters, whereas CUB's loop would give each thread a copy, in memory.
template <class F>
void for_each_with_list(cuda::stream& queue, std::size_t n, const F& f) {
  if (n == 0) {
    return;
  }
  const cuda::on_device here(queue.device());
  call_with_list<<<blocks_for(n), threads_a_block, 0, queue.native_handle()>>>(n, f);
  cuda::check(cudaGetLastError());
}

/// The sixteen threads that share a block of elements: half of a warp.
struct lanes_of_block {
  template <class T>
  struct of_lanes {
    T mine;
    __device__ T& operator[](std::size_t) { return mine; }
  };

  std::size_t lane;
  unsigned together;  // the bits of these threads in the warp's mask

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

template <unsigned Threads, class F>
__global__ void __launch_bounds__(Threads, 4) share_blocks(std::size_t blocks, F f) {
  const lanes_of_block lanes{threadIdx.x % block_lanes, 0xffffu << (threadIdx.x & 16u)};
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x / block_lanes;
  const std::size_t thread = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (std::size_t number = thread / block_lanes; number < blocks; number += stride) {
    f(lanes, number);
  }
}

/// Calls `f(lanes, number)` for every block of elements. At least four blocks of `Threads` threads
/// share a multiprocessor: the fewer threads, the more registers each may have.
template <unsigned Threads = threads_a_block, class F>
void for_each_block(cuda::stream& queue, std::size_t blocks, const F& f) {
  if (blocks == 0) {
    return;
  }
  const cuda::on_device here(queue.device());
  share_blocks<Threads>
      <<<blocks_for(blocks * block_lanes, Threads), Threads, 0, queue.native_handle()>>>(blocks, f);
  cuda::check(cudaGetLastError());
}

/// A device's block of threads, which take a step together.
struct block_of_threads {
  struct warp {
    template <class T>
    struct of_lanes {
      T mine;
      __device__ T& operator[](std::size_t) { return mine; }
    };

    template <class F>
    __device__ void each(const F& f) const {
      f(threadIdx.x % steps::lanes);
      __syncwarp();
    }
  };
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

/// Calls `step(block, shared memory)` on `blocks` blocks of threads.
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
