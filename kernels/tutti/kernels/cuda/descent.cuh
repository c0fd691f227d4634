#pragma once

#include <span>

#include "tutti/kernels/cuda/each.cuh"
#include "tutti/kernels/descent.hpp"

// The definitions of what descent.hpp declares for a cuda::stream.
namespace tutti::kernels {

[[gnu::used]] inline void descend(cuda::stream& queue, std::span<float> x, std::span<const float> g,
                                  descent values) {
  device::change_each(queue, x.size(), element::descend{values}, x.data(), g.data());
}

[[gnu::used]] inline void descend_with_momentum(cuda::stream& queue, std::span<float> x,
                                                std::span<float> m, std::span<const float> g,
                                                descent values) {
  device::each(queue, x.size(), element::descend_with_momentum{values}, x.data(), m.data(),
               g.data());
}

[[gnu::used]] inline void descend_with_nesterov(cuda::stream& queue, std::span<float> x,
                                                std::span<float> m, std::span<const float> g,
                                                descent values) {
  device::each(queue, x.size(), element::descend_with_nesterov{values}, x.data(), m.data(),
               g.data());
}

}  // namespace tutti::kernels
