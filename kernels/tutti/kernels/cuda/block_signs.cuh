#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/kernels/block_signs.hpp"
#include "tutti/kernels/cuda/each.cuh"
#include "tutti/kernels/cuda/signs.cuh"

// The definitions of what block_signs.hpp declares for a cuda::stream.
namespace tutti::kernels {

[[gnu::used]] inline void pack_block_signs(cuda::stream& queue, std::span<const float> input,
                                           std::size_t block, float* magnitudes,
                                           std::uint32_t* words) {
  const std::size_t n = input.size();
  device::for_each_block(queue, block_count(n, block),
                         element::pack_block{input.data(), n, block, magnitudes, words});
}

[[gnu::used]] inline void add_and_pack_block_signs(cuda::stream& queue, std::span<float> into,
                                                   std::span<const float> from, std::size_t block,
                                                   float* magnitudes, std::uint32_t* words) {
  const std::size_t n = into.size();
  device::for_each_block(
      queue, block_count(n, block),
      element::add_and_pack_block{into.data(), from.data(), n, block, magnitudes, words});
}

[[gnu::used]] inline void add_block_signs(cuda::stream& queue, const float* magnitudes,
                                          const std::uint32_t* words, std::size_t block,
                                          std::span<float> sum) {
  device::decode_signs<detail::added>(queue, words, magnitudes, sum, block);
}

}  // namespace tutti::kernels
