#pragma once

#include <cstddef>
#include <span>

#include "tutti/kernels/block_codes.hpp"
#include "tutti/kernels/cuda/each.cuh"

// The definitions of what block_codes.hpp declares for a cuda::stream.
namespace tutti::kernels {

template <class Code>
void quantise_blocks(cuda::stream& queue, std::span<const float> input, std::size_t block,
                     float* scales, typename Code::stored* codes) {
  const std::size_t n = input.size();
  device::for_each_block(queue, block_count(n, block),
                         element::quantise_block<Code>{input.data(), n, block, scales, codes});
}

template <class Code>
void add_and_quantise_blocks(cuda::stream& queue, std::span<float> into,
                             std::span<const float> from, std::size_t block, float* scales,
                             typename Code::stored* codes) {
  const std::size_t n = into.size();
  device::for_each_block(
      queue, block_count(n, block),
      element::add_and_quantise_block<Code>{into.data(), from.data(), n, block, scales, codes});
}

template <class Code>
void add_dequantised(cuda::stream& queue, const float* scales, const typename Code::stored* codes,
                     std::size_t block, std::span<float> sum) {
  const std::size_t n = sum.size();
  device::for_each_block(queue, block_count(n, block),
                         element::add_dequantised_block<Code>{scales, codes, sum.data(), n, block});
}

}  // namespace tutti::kernels
