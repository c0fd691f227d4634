#pragma once

#include <span>

#include "tutti/kernels/cuda/each.cuh"
#include "tutti/kernels/momentum.hpp"

// The definitions of what momentum.hpp declares for a cuda::stream.
namespace tutti::kernels {

[[gnu::used]] inline void add_nesterov(cuda::stream& queue, std::span<float> m,
                                       std::span<float> direction, std::span<const float> g,
                                       float momentum) {
  device::each(queue, m.size(), element::add_nesterov{momentum}, m.data(), direction.data(),
               g.data());
}

}  // namespace tutti::kernels
