#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/base/cuda/stream.hpp"
#include "tutti/kernels/cuda/each.cuh"
#include "tutti/kernels/sparse_pairs.hpp"

// The definitions of what sparse_pairs.hpp declares for a cuda::stream.
namespace tutti::kernels {

[[gnu::used]] inline void merge_pairs(cuda::stream& queue, const pairs& mine, const pairs& theirs,
                                      selection out) {
  device::for_each(
      queue, mine.size() + theirs.size(),
      element::merge_pairs{mine.indices.data(), mine.values, mine.size(), theirs.indices.data(),
                           theirs.values, theirs.size(), out.indices.data(), out.values});
}

[[gnu::used]] inline void add_absent(cuda::stream& queue, const pairs& some,
                                     std::span<const std::uint32_t> present, std::span<float> sum) {
  device::for_each(queue, some.size(),
                   element::add_absent{some.indices.data(), some.values, present.data(),
                                       present.size(), sum.data(), sum.size()});
}

}  // namespace tutti::kernels
