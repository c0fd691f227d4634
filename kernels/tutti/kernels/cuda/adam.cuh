#pragma once

#include <span>

#include "tutti/kernels/adam.hpp"
#include "tutti/kernels/cuda/each.cuh"

// The definitions of what adam.hpp declares for a cuda::stream.
namespace tutti::kernels {

[[gnu::used]] inline void adam(cuda::stream& queue, std::span<float> x, std::span<float> m,
                               std::span<float> v, std::span<const float> g,
                               const adam_step& values) {
  device::each(queue, x.size(), element::adam{values}, x.data(), m.data(), v.data(), g.data());
}

[[gnu::used]] inline void adam_along(cuda::stream& queue, std::span<float> x,
                                     std::span<const float> m, std::span<const float> v,
                                     const adam_step& values) {
  device::change_each(queue, x.size(), element::adam_along{values}, x.data(), m.data(), v.data());
}

}  // namespace tutti::kernels
