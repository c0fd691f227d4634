#pragma once

#include <cstddef>
#include <span>

#include "tutti/kernels/adaptive_sum.hpp"
#include "tutti/kernels/cuda/each.cuh"

// The definitions of what adaptive_sum.hpp declares for a cuda::stream.
namespace tutti::kernels {

namespace device {

inline auto inner_products_of(cuda::stream& queue, std::span<const float> first,
                              std::span<const float> second, inner_products* result) {
  return [=, stream = queue.native_handle()](void* storage, std::size_t& bytes) {
    return cub::DeviceReduce::TransformReduce(
        storage, bytes, indices(), result, first.size(), element::sum_of_products{},
        element::products_at{first.data(), second.data()}, inner_products{}, stream);
  };
}

}  // namespace device

[[gnu::used]] inline void multiply(cuda::stream& queue, std::span<const float> first,
                                   std::span<const float> second, inner_products* result) {
  device::run(queue, 0, device::inner_products_of(queue, first, second, result));
}

[[gnu::used]] inline void add_products(cuda::stream& queue, std::span<inner_products> into,
                                       std::span<const inner_products> from) {
  device::for_each(queue, into.size(), element::add_products{into.data(), from.data()});
}

[[gnu::used]] inline void add_adaptively(cuda::stream& queue, std::span<float> into,
                                         std::span<const float> from, const inner_products* known,
                                         operand place) {
  device::change_each(queue, into.size(), element::add_adaptively{known, place}, into.data(),
                      from.data());
}

}  // namespace tutti::kernels
