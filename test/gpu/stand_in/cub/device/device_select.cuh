#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>

#include "gpu/stand_in/cub/storage.hpp"

namespace cub {

struct DeviceSelect {
  template <class Input, class Output, class Count, class Select>
  static cudaError_t If(void* storage, std::size_t& bytes, Input input, Output output, Count* count,
                        std::int64_t n, Select select, cudaStream_t stream = nullptr) {
    const std::size_t wanted = static_cast<std::size_t>(n) / 16 + 1;
    return tutti::test::in_storage(wanted, storage, bytes, stream, [=]() mutable {
      Count selected = 0;
      for (std::int64_t i = 0; i < n; ++i, ++input) {
        const auto here = *input;
        if (select(here)) {
          *output = here;
          ++output;
          ++selected;
        }
      }
      *count = selected;
    });
  }
};

}  // namespace cub
