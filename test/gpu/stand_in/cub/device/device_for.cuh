#pragma once

#include <cuda_runtime_api.h>

#include "gpu/stand_in/runtime.hpp"

namespace cub {

struct DeviceFor {
  /// Runs elements in reverse order.
  template <class Shape, class Op>
  static cudaError_t Bulk(Shape shape, Op op, cudaStream_t stream = {}) {
    tutti::test::stood_in_by(stream).run([=]() mutable {
      for (Shape i = shape; i-- > 0;) {
        op(i);
      }
    });
    return cudaSuccess;
  }
};

}  // namespace cub
