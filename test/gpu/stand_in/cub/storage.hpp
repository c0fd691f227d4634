#pragma once

#include <cstddef>
#include <cstring>
#include <cuda_runtime_api.h>
#include <utility>

#include "gpu/stand_in/runtime.hpp"

/// CUB without a device: the functions that tutti calls, as plain loops on the stand-in's streams.
namespace tutti::test {

/// Does what all of CUB's algorithms do. Without storage it reports the bytes needed, and with less
/// than those it refuses. Otherwise it enqueues `work`, before and after which the storage is
/// overwritten with rubbish.
template <class Work>
cudaError_t in_storage(std::size_t wanted, void* storage, std::size_t& bytes, cudaStream_t stream,
                       Work work) {
  if (storage == nullptr) {
    bytes = wanted;
    return cudaSuccess;
  }
  if (bytes < wanted) {
    return cudaErrorInvalidValue;
  }
  stood_in_by(stream).run([=, work = std::move(work)]() mutable {
    std::memset(storage, 0xFF, wanted);
    work();
    std::memset(storage, 0xFF, wanted);
  });
  return cudaSuccess;
}

}  // namespace tutti::test
