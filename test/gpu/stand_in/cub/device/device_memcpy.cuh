#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <cuda_runtime_api.h>

#include "gpu/stand_in/cub/storage.hpp"

namespace cub {

struct DeviceMemcpy {
  /// Copies in reverse order. The lists are read when the stream reaches the copy.
  template <class From, class To, class Sizes>
  static cudaError_t Batched(void* storage, std::size_t& bytes, From from, To to, Sizes sizes,
                             std::int64_t buffers, cudaStream_t stream = nullptr) {
    const std::size_t wanted = static_cast<std::size_t>(buffers) * 32 + 1;
    return tutti::test::in_storage(wanted, storage, bytes, stream, [=]() mutable {
      for (std::int64_t i = buffers; i-- > 0;) {
        if (sizes[i] != 0) {
          std::memcpy(to[i], from[i], sizes[i]);
        }
      }
    });
  }
};

}  // namespace cub
