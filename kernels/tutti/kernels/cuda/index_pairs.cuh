#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/kernels/cuda/each.cuh"
#include "tutti/kernels/index_pairs.hpp"

// The definitions of what index_pairs.hpp declares for a cuda::stream.
namespace tutti::kernels {

[[gnu::used]] inline void draw_pairs(cuda::stream& queue, std::span<const float> input,
                                     std::uint64_t seed, std::size_t first_draw,
                                     std::span<index_pair> out) {
  const std::size_t threads =
      (out.size() + element::draw_some::each - 1) / element::draw_some::each;
  device::for_each(queue, threads,
                   element::draw_some{input.data(), input.size(), xorshift128_plus(seed),
                                      first_draw, out.data(), out.size()});
}

[[gnu::used]] inline void select_by_heap(cuda::stream& queue, std::span<const float> input,
                                         std::uint64_t first_element, std::span<index_pair> out) {
  device::on_blocks(queue, out.empty() ? 0 : 1,
                    steps::fill_heap{input.data(),
                                     input.size(),
                                     {out.data(), out.size()},
                                     queue.workspace().refused(),
                                     first_element});
}

[[gnu::used]] inline void add_pairs(cuda::stream& queue, std::span<const index_pair> pairs,
                                    std::span<float> sum) {
  device::for_each(queue, pairs.size(),
                   element::add_new_pair{pairs.data(), sum.data(), sum.size()});
}

[[gnu::used]] inline void clear_pairs(cuda::stream& queue, std::span<float> data,
                                      std::span<const index_pair> pairs) {
  device::for_each(queue, pairs.size(), element::clear_pair{data.data(), pairs.data()});
}

}  // namespace tutti::kernels
