#pragma once

#include <algorithm>
#include <cstddef>
#include <cuda_runtime.h>

#include "tutti/base/fixed_sum.hpp"

namespace tutti::cuda::detail {

inline constexpr unsigned threads_a_block = 256;
/// More blocks than any device runs at once; threads go on from there.
inline constexpr std::size_t most_blocks = 16384;

/// Blocks for so many threads, which stride if they are fewer.
inline unsigned blocks_for(std::size_t threads) {
  return static_cast<unsigned>(
      std::min(most_blocks, (threads + threads_a_block - 1) / threads_a_block));
}

template <class F>
__global__ void for_each_index(std::size_t n, F f) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride) {
    f(i);
  }
}

template <class F>
cudaError_t launch_for_each(cudaStream_t stream, std::size_t n, F f) {
  if (n == 0) {
    return cudaSuccess;
  }
  for_each_index<<<blocks_for(n), threads_a_block, 0, stream>>>(n, f);
  return cudaGetLastError();
}

/// Folds what each of a block's threads has, and calls `finish(total)` on one of them.
template <class Finish>
__device__ void fold_block(double mine, const Finish& finish) {
  __shared__ double sums[fixed_sum::threads];
  sums[threadIdx.x] = mine;
  for (std::size_t half = fixed_sum::threads / 2; half > 0; half /= 2) {
    __syncthreads();
    fixed_sum::fold(sums, threadIdx.x, half);
  }
  if (threadIdx.x == 0) {
    finish(sums[0]);
  }
}

template <class T>
struct keep_as {
  T* place;
  TUTTI_HD void operator()(double total) const { *place = static_cast<T>(total); }
};

template <class Term>
__global__ void sum_segments(fixed_sum order, Term term, double* partial) {
  fold_block(order.of_thread(term, blockIdx.x, threadIdx.x), keep_as<double>{partial + blockIdx.x});
}

struct partial_term {
  const double* partial;
  TUTTI_HD double operator()(std::size_t i) const { return partial[i]; }
};

/// The segments' sums are few enough to be one segment.
template <class Finish>
__global__ void sum_partials(std::size_t segments, const double* partial, Finish finish) {
  fold_block(fixed_sum(segments).of_thread(partial_term{partial}, 0, threadIdx.x), finish);
}

/// Adds `term(i)` for i in [0, n) as fixed_sum says and calls `finish(total)` on the device.
/// `partial` has room for fixed_sum::most_segments.
template <class Term, class Finish>
cudaError_t launch_sum(cudaStream_t stream, std::size_t n, Term term, double* partial,
                       Finish finish) {
  constexpr unsigned threads = fixed_sum::threads;
  const fixed_sum order(n);
  const auto segments = static_cast<unsigned>(order.segments());
  sum_segments<<<segments, threads, 0, stream>>>(order, term, partial);
  sum_partials<<<1, threads, 0, stream>>>(order.segments(), partial, finish);
  return cudaGetLastError();
}

template <class F>
struct transformed {
  const float* input;
  F f;
  TUTTI_HD auto operator()(std::size_t i) const { return f(input[i]); }
};

}  // namespace tutti::cuda::detail
