#pragma once

#include <algorithm>
#include <cstddef>
#include <cuda_runtime_api.h>

#include "gpu/stand_in/cub/storage.hpp"

namespace cub {

struct DeviceReduce {
  /// Reduces tiles and then joins their results; the host's kernels add in another order.
  template <class Input, class Output, class Count, class Fold, class Transform, class T>
  static cudaError_t TransformReduce(void* storage, std::size_t& bytes, Input input, Output output,
                                     Count n, Fold fold, Transform transform, T first,
                                     cudaStream_t stream = nullptr) {
    constexpr Count tile = 1000;
    const std::size_t wanted = (n / tile + 1) * sizeof(T);
    return tutti::test::in_storage(wanted, storage, bytes, stream, [=]() mutable {
      T all = first;
      for (Count begin = 0; begin < n; begin += tile) {
        T total = transform(*input);
        ++input;
        for (Count i = begin + 1; i < std::min(n, begin + tile); ++i, ++input) {
          total = fold(total, T(transform(*input)));
        }
        all = fold(all, total);
      }
      *output = all;
    });
  }
};

}  // namespace cub
