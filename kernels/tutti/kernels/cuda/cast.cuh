#pragma once

#include <span>

#include "tutti/kernels/cast.hpp"
#include "tutti/kernels/cuda/each.cuh"
#include "tutti/kernels/elements.hpp"

// The definitions of what cast.hpp declares for a cuda::stream.
namespace tutti::kernels {

template <class Format>
void narrow(cuda::stream& queue, std::span<const float> input, typename Format::bits* out) {
  device::each(queue, input.size(), element::narrow<Format>{}, input.data(),
               only_written<typename Format::bits>{out});
}

template <class Format>
void widen(cuda::stream& queue, const typename Format::bits* input, std::span<float> out) {
  device::each(queue, out.size(), element::widen<Format>{}, input, only_written<float>{out.data()});
}

template <class Format>
void add_widened(cuda::stream& queue, const typename Format::bits* input, std::span<float> sum) {
  device::each(queue, sum.size(), element::add_widened<Format>{}, input, sum.data());
}

template <class Format>
void add_narrow(cuda::stream& queue, std::span<typename Format::bits> into,
                const typename Format::bits* from) {
  device::each(queue, into.size(), element::add_narrow<Format>{}, into.data(), from);
}

}  // namespace tutti::kernels
