#pragma once

#include <span>

#include "tutti/kernels/adaptive_sum.hpp"
#include "tutti/kernels/cuda/each.cuh"
#include "tutti/kernels/norms.hpp"

// The definitions of what adaptive_sum.hpp declares for a cuda::stream.
namespace tutti::kernels {

[[gnu::used]] inline void multiply(cuda::stream& queue, std::span<const float> first,
                                   std::span<const float> second, inner_products* result) {
  const float* const one = first.data();
  const float* const other = second.data();
  device::add_up(queue, first.size(), element::exact_product{one, other},
                 element::keep_total{&result->dot});
  device::add_up(queue, first.size(), element::exact_product{one, one},
                 element::keep_total{&result->first});
  device::add_up(queue, first.size(), element::exact_product{other, other},
                 element::keep_total{&result->second});
}

[[gnu::used]] inline void add_products(cuda::stream& queue, std::span<inner_products> into,
                                       std::span<const inner_products> from) {
  device::for_each(queue, into.size(), element::add_products{into.data(), from.data()});
}

[[gnu::used]] inline void add_adaptively(cuda::stream& queue, std::span<float> into,
                                         std::span<const float> from, const inner_products* known,
                                         operand place) {
  device::each(queue, into.size(), element::add_adaptively{known, place}, into.data(), from.data());
}

}  // namespace tutti::kernels
