#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "tutti/base/loops.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/kernels/cuda/each.cuh"
#include "tutti/kernels/elements.hpp"

// The definitions of what arithmetic.hpp declares for a cuda::stream. Code that is compiled with
// nvcc may include them; all other code links tutti::cuda, which holds them compiled.
namespace tutti::kernels {

[[gnu::used]] inline void add(cuda::stream& queue, std::span<float> into,
                              std::span<const float> from) {
  device::change_each(queue, into.size(), element::add{}, into.data(), from.data());
}

[[gnu::used]] inline void scale(cuda::stream& queue, std::span<float> data, float factor) {
  device::change_each(queue, data.size(), element::scale{factor}, data.data());
}

[[gnu::used]] inline void add_scaled(cuda::stream& queue, std::span<float> into,
                                     std::span<const float> from, float factor) {
  device::change_each(queue, into.size(), element::add_scaled{factor}, into.data(), from.data());
}

[[gnu::used]] inline void blend(cuda::stream& queue, std::span<float> into,
                                std::span<const float> from, float keep, float take) {
  device::change_each(queue, into.size(), element::blend{keep, take}, into.data(), from.data());
}

[[gnu::used]] inline void swap(cuda::stream& queue, std::span<float> one, std::span<float> other) {
  device::each(queue, one.size(), element::swap{}, one.data(), other.data());
}

[[gnu::used]] inline void negate(cuda::stream& queue, std::span<float> data) {
  device::change_each(queue, data.size(), element::negate{}, data.data());
}

namespace device {

template <int Width>
void sum_packs(cuda::stream& queue, std::span<float> out, std::span<const float* const> inputs) {
  using element::sum_of_some;
  for (std::size_t first = 0; first == 0 || first < inputs.size(); first += sum_of_some::most) {
    const std::size_t count = std::min(inputs.size() - first, sum_of_some::most);
    for_each_with_list(
        queue, out.size() / Width,
        in_packs<Width, sum_of_some>{{out.data(), inputs.subspan(first, count), first}});
  }
}

}  // namespace device

[[gnu::used]] inline void sum(cuda::stream& queue, std::span<float> out,
                              std::span<const float* const> inputs) {
  const auto aligned = [](const float* each) { return aligned_for<4>(each); };
  if (out.size() % 4 == 0 && aligned(out.data()) && loops::all_of(inputs, aligned)) {
    device::sum_packs<4>(queue, out, inputs);
  } else {
    device::sum_packs<1>(queue, out, inputs);
  }
}

[[gnu::used]] inline void mean_magnitude(cuda::stream& queue, std::span<const float> input,
                                         float* result) {
  device::add_up(queue, input.data(), input.size(), element::absolute{},
                 element::keep_mean{result, input.size()});
}

[[gnu::used]] inline void add_and_mean_magnitude(cuda::stream& queue, std::span<float> into,
                                                 std::span<const float> from, float* result) {
  device::add_up(queue, device::indices(), into.size(),
                 element::magnitude_of_sum{into.data(), from.data()},
                 element::keep_mean{result, into.size()});
}

}  // namespace tutti::kernels
