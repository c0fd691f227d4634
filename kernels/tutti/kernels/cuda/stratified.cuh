#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/base/cuda/stream.hpp"
#include "tutti/kernels/cuda/each.cuh"
#include "tutti/kernels/stratified.hpp"

// The definitions of what stratified.hpp declares for a cuda::stream.
namespace tutti::kernels {

[[gnu::used]] inline void draw(cuda::stream& queue, std::span<const float> input, std::uint64_t key,
                               drawn_as what, drawn_values out) {
  device::for_each(queue, out.count,
                   element::draw{input.data(),
                                 {input.size(), out.count},
                                 key,
                                 what == drawn_as::its_run,
                                 out.key,
                                 out.values});
}

[[gnu::used]] inline void add_drawn(cuda::stream& queue, const const_drawn_values& in,
                                    std::span<float> sum) {
  device::for_each(queue, in.count,
                   element::add_drawn{in.key, in.values, {sum.size(), in.count}, sum.data()});
}

[[gnu::used]] inline void clear_drawn(cuda::stream& queue, const const_drawn_values& in,
                                      std::span<float> data) {
  device::for_each(queue, in.count,
                   element::clear_drawn{in.key, {data.size(), in.count}, data.data()});
}

}  // namespace tutti::kernels
