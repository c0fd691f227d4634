#pragma once

#include <span>

#include "tutti/base/cuda/stream.hpp"
#include "tutti/kernels/compensation.hpp"
#include "tutti/kernels/cuda/each.cuh"

// The definitions of what compensation.hpp declares for a cuda::stream.
namespace tutti::kernels {

[[gnu::used]] inline void compensate(cuda::stream& queue, std::span<float> g,
                                     std::span<const float> now, std::span<const float> read,
                                     float lambda) {
  device::each(queue, g.size(), element::compensate{lambda}, g.data(), now.data(), read.data());
}

[[gnu::used]] inline void compensate_adaptively(cuda::stream& queue, std::span<float> g,
                                                std::span<float> mean_square,
                                                std::span<const float> now,
                                                std::span<const float> read, float lambda,
                                                float keep, float take) {
  device::each(queue, g.size(), element::compensate_adaptively{lambda, keep, take}, g.data(),
               mean_square.data(), now.data(), read.data());
}

}  // namespace tutti::kernels
