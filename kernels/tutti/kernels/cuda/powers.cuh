#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/kernels/cuda/each.cuh"
#include "tutti/kernels/powers.hpp"

// The definitions of what powers.hpp declares for a cuda::stream.
namespace tutti::kernels {

[[gnu::used]] inline void round_to_powers(cuda::stream& queue, std::span<const float> input,
                                          const counted_random& random, std::uint32_t* words,
                                          std::uint8_t* powers) {
  const std::size_t n = input.size();
  device::for_each(queue, sign_words(n),
                   element::round_to_powers{input.data(), n, random, words, powers});
}

[[gnu::used]] inline void add_powers(cuda::stream& queue, const std::uint32_t* words,
                                     const std::uint8_t* powers, std::span<float> sum) {
  device::for_each(queue, sign_words(sum.size()),
                   element::add_powers{words, powers, sum.data(), sum.size()});
}

}  // namespace tutti::kernels
