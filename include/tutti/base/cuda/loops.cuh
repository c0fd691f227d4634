#pragma once

#include <cstddef>
#include <cub/device/device_for.cuh>
#include <cub/device/device_reduce.cuh>
#include <cuda/std/functional>
#include <span>
#include <thrust/iterator/tabulate_output_iterator.h>

#include "tutti/base/cuda/error.hpp"
#include "tutti/base/cuda/stream_workspace.hpp"
#include "tutti/base/host_device.hpp"

/// Loops over elements on a device. They are CUB's, on a stream and in the stream's workspace
/// (base/cuda/stream_workspace.hpp).
namespace tutti::cuda::detail {

/// Returns the bytes of workspace that one of CUB's algorithms, `algorithm(storage, bytes)`, needs.
template <class Algorithm>
std::size_t storage_of(const Algorithm& algorithm) {
  std::size_t bytes = 0;
  check(algorithm(nullptr, bytes));
  return bytes;
}

/// Enqueues one of CUB's algorithms. Its temporary storage lies in `workspace`, behind the first
/// `kept` bytes.
template <class Algorithm>
void run_in(stream_workspace& workspace, std::size_t kept, const Algorithm& algorithm) {
  std::size_t bytes = storage_of(algorithm);
  check(algorithm(workspace.at_least(kept + bytes) + kept, bytes));
}

template <class F>
void launch_for_each(cudaStream_t stream, std::size_t n, const F& f) {
  check(cub::DeviceFor::Bulk(n, f, stream));
}

/// Calls `finish(total)` where an algorithm would store its result.
template <class Finish>
struct finish_with {
  Finish finish;
  template <class T>
  TUTTI_HD void operator()(std::ptrdiff_t, const T& total) const {
    finish(total);
  }
};

/// Returns an algorithm for `run_in`: with `fold` it joins `first` and `term(input[i])` for every i
/// in [0, n), in an order that follows from n and the kind of device, and calls `finish(total)` on
/// the device.
template <class Input, class Fold, class Term, class T, class Finish>
auto reduction(cudaStream_t stream, Input input, std::size_t n, const Fold& fold, const Term& term,
               const T& first, const Finish& finish) {
  return [=](void* storage, std::size_t& bytes) {
    return cub::DeviceReduce::TransformReduce(
        storage, bytes, input, thrust::make_tabulate_output_iterator(finish_with<Finish>{finish}),
        n, fold, term, first, stream);
  };
}

template <class T>
struct keep_as {
  T* place;
  TUTTI_HD void operator()(double total) const { *place = static_cast<T>(total); }
};

/// Enqueues a call of `finish(total)` on the device with the sum of `term(input[i])`, added in
/// double.
template <class Input, class Term, class Finish>
void launch_sum(cudaStream_t stream, stream_workspace& workspace, Input input, std::size_t n,
                const Term& term, const Finish& finish) {
  run_in(workspace, 0, reduction(stream, input, n, ::cuda::std::plus<double>(), term, 0.0, finish));
}

/// The loops of a stream over the functor `F`, for base/cuda/stream.hpp.
template <class F>
struct loops {
  static void each(cudaStream_t stream, std::size_t n, const F& f) {
    launch_for_each(stream, n, f);
  }
  template <class T>
  static void sum(cudaStream_t stream, stream_workspace& workspace, std::span<const float> input,
                  T* result, const F& f) {
    launch_sum(stream, workspace, input.data(), input.size(), f, keep_as<T>{result});
  }
};

}  // namespace tutti::cuda::detail
