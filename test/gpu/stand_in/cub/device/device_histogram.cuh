#pragma once

#include <algorithm>
#include <cstddef>
#include <cuda_runtime_api.h>

#include "gpu/stand_in/cub/storage.hpp"

namespace cub {

struct DeviceHistogram {
  template <class Input, class Counter, class Level, class Count>
  static cudaError_t HistogramEven(void* storage, std::size_t& bytes, Input samples,
                                   Counter* histogram, int levels, Level lower, Level upper,
                                   Count n, cudaStream_t stream = nullptr) {
    const auto wanted = static_cast<std::size_t>(levels) * 1024;
    return tutti::test::in_storage(wanted, storage, bytes, stream, [=]() mutable {
      std::fill_n(histogram, levels - 1, Counter{0});
      for (Count i = 0; i < n; ++i) {
        const Level sample = samples[i];
        if (lower <= sample && sample < upper) {
          ++histogram[(sample - lower) * (levels - 1) / (upper - lower)];
        }
      }
    });
  }
};

}  // namespace cub
