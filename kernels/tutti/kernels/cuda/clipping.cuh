#pragma once

#include <cstddef>
#include <span>

#include "tutti/base/cuda/stream.hpp"
#include "tutti/kernels/clipping.hpp"
#include "tutti/kernels/cuda/each.cuh"

// The definitions of what clipping.hpp declares for a cuda::stream.
namespace tutti::kernels {

[[gnu::used]] inline void find_clip_factor(cuda::stream& queue, std::span<const float> input,
                                           double scale, double bound, float* factor) {
  device::add_up(queue, input.data(), input.size(), element::square{},
                 element::keep_clip_factor{factor, scale, bound});
}

[[gnu::used]] inline void blend_clipped(cuda::stream& queue, std::span<float> into,
                                        std::span<const float> from, float keep,
                                        const float* factor) {
  device::change_each(queue, into.size(), element::blend_clipped{keep, factor}, into.data(),
                      from.data());
}

[[gnu::used]] inline void fade(cuda::stream& queue, std::span<float> data, float keep, float most) {
  device::change_each(queue, data.size(), element::fade{keep, most}, data.data());
}

}  // namespace tutti::kernels
