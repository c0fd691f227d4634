#pragma once

#include <cstdint>
#include <cuda/functional>
#include <span>

#include "tutti/kernels/cuda/each.cuh"
#include "tutti/kernels/norms.hpp"

// The definitions of what norms.hpp declares for a cuda::stream.
namespace tutti::kernels {

[[gnu::used]] inline void sum_of_squares(cuda::stream& queue, std::span<const float> input,
                                         double* result) {
  device::add_up(queue, input.data(), input.size(), element::square{}, element::keep_total{result});
}

[[gnu::used]] inline void root_mean_square(cuda::stream& queue, std::span<const float> input,
                                           float* result) {
  device::add_up(queue, input.data(), input.size(), element::square{},
                 element::keep_root_of_mean{result, input.size()});
}

[[gnu::used]] inline void add_and_root_mean_square(cuda::stream& queue, std::span<float> into,
                                                   std::span<const float> from, float* result) {
  device::add_up(queue, device::indices(), into.size(),
                 element::square_of_sum{into.data(), from.data()},
                 element::keep_root_of_mean{result, into.size()});
}

[[gnu::used]] inline void largest_magnitude(cuda::stream& queue, std::span<const float> input,
                                            float* result) {
  device::run(queue, 0, [=, stream = queue.native_handle()](void* storage, std::size_t& bytes) {
    return cub::DeviceReduce::TransformReduce(
        storage, bytes, input.data(), reinterpret_cast<std::uint32_t*>(result), input.size(),
        ::cuda::maximum<std::uint32_t>(), element::key{}, std::uint32_t{0}, stream);
  });
}

[[gnu::used]] inline void count_nonfinite(cuda::stream& queue, std::span<const float> input,
                                          std::uint64_t* count) {
  device::add_up(queue, input.data(), input.size(), element::is_nonfinite{},
                 element::add_to_count{count});
}

}  // namespace tutti::kernels
