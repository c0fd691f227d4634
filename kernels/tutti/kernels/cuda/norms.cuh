#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/kernels/cuda/each.cuh"
#include "tutti/kernels/norms.hpp"

// The definitions of what norms.hpp declares for a cuda::stream.
namespace tutti::kernels {

[[gnu::used]] inline void sum_of_squares(cuda::stream& queue, std::span<const float> input,
                                         double* result) {
  device::add_up(queue, input.size(), element::square{input.data()}, element::keep_total{result});
}

[[gnu::used]] inline void largest_magnitude(cuda::stream& queue, std::span<const float> input,
                                            float* result) {
  constexpr std::size_t most_threads = std::size_t{1} << 18;
  const std::size_t threads = std::min(input.size(), most_threads);
  queue.clear(result, sizeof *result);
  device::for_each(queue, threads,
                   element::raise_to_largest{input.data(), input.size(), threads,
                                             reinterpret_cast<std::uint32_t*>(result)});
}

[[gnu::used]] inline void count_no_numbers(cuda::stream& queue, std::span<const float> input,
                                           std::uint64_t* count) {
  device::add_up(queue, input.size(), element::is_no_number{input.data()},
                 element::add_to_count{count});
}

}  // namespace tutti::kernels
