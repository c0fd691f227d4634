#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "gpu/stand_in/runtime.hpp"
#include "tutti/base/cuda/stream.hpp"
#include "tutti/kernels/block_of_threads.hpp"
#include "tutti/kernels/blocks.hpp"

/// A launcher without nvcc: loops on the stand-in's streams, where a device has threads.
namespace tutti::kernels::device {

template <class F>
void for_each_with_list(cuda::stream& queue, std::size_t n, const F& f) {
  test::stood_in_by(queue.native_handle()).for_each(n, f);
}

template <unsigned Threads = 0, class F>
void for_each_block(cuda::stream& queue, std::size_t blocks, const F& f) {
  test::stood_in_by(queue.native_handle()).for_each(blocks, [f](std::size_t number) {
    f(host_lanes{}, number);
  });
}

/// Runs blocks in reverse order, with memory that has not been cleared.
template <class Step>
void on_blocks(cuda::stream& queue, std::size_t blocks, const Step& step) {
  test::stood_in_by(queue.native_handle()).run([=] {
    for (std::size_t number = blocks; number-- > 0;) {
      const auto shared = std::make_unique_for_overwrite<typename Step::memory>();
      std::memset(static_cast<void*>(shared.get()), 0xFF, sizeof *shared);
      step(
          steps::host_block{static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(blocks)},
          *shared);
    }
  });
}

}  // namespace tutti::kernels::device
