#pragma once

#include <span>

#include "tutti/kernels/cast.hpp"
#include "tutti/kernels/cuda/each.cuh"
#include "tutti/kernels/elements.hpp"

// The definitions of what cast.hpp declares for a cuda::stream.
namespace tutti::kernels {

template <class Format>
void narrow(cuda::stream& queue, std::span<const float> input, typename Format::bits* out) {
  device::make_each(queue, input.size(), element::narrow<Format>{}, input.data(), out);
}

template <class Format>
void widen(cuda::stream& queue, const typename Format::bits* input, std::span<float> out) {
  device::make_each(queue, out.size(), element::widen<Format>{}, input, out.data());
}

template <class Format>
void add_widened(cuda::stream& queue, const typename Format::bits* input, std::span<float> sum) {
  device::change_each(queue, sum.size(), element::add_widened<Format>{}, sum.data(), input);
}

template <class Format>
void add_narrow(cuda::stream& queue, std::span<typename Format::bits> into,
                const typename Format::bits* from) {
  device::change_each(queue, into.size(), element::add_narrow<Format>{}, into.data(), from);
}

}  // namespace tutti::kernels
