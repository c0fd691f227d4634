#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/base/wire.hpp"
#include "tutti/kernels/cuda/each.cuh"
#include "tutti/kernels/signs.hpp"

// The definitions of what signs.hpp declares for a cuda::stream: a thread for each word, the same
// words as the host's.
namespace tutti::kernels {

[[gnu::used]] inline void pack_signs(cuda::stream& queue, std::span<const float> input,
                                     std::uint32_t* words) {
  const std::size_t count = sign_words(input.size());
  device::for_each(queue, count, element::pack_word{input.data(), input.size(), count, words});
}

[[gnu::used]] inline void pack_signs_and_subtract(cuda::stream& queue, std::span<float> input,
                                                  const float* magnitude, std::uint32_t* words) {
  const std::size_t count = sign_words(input.size());
  device::for_each(
      queue, count,
      element::pack_word_and_subtract{input.data(), input.size(), count, magnitude, words});
}

[[gnu::used]] inline void add_and_pack_signs(cuda::stream& queue, std::span<float> into,
                                             std::span<const float> from, std::uint32_t* words) {
  const std::size_t count = sign_words(into.size());
  device::for_each(
      queue, count,
      element::add_and_pack_word{into.data(), from.data(), into.size(), count, nullptr, words});
}

[[gnu::used]] inline void add_signs(cuda::stream& queue, const std::uint32_t* words,
                                    const float* magnitude, std::span<float> sum) {
  const std::size_t count = sign_words(sum.size());
  device::for_each(queue, count,
                   element::add_word{words, magnitude, sum.data(), sum.size(), count});
}

namespace device {

template <unsigned Planes>
void count_votes(cuda::stream& queue, std::span<std::uint32_t> out, payload_row ballots) {
  for_each(queue, out.size(),
           element::count_word<Planes>{ballots.first, ballots.stride,
                                       static_cast<std::uint32_t>(ballots.count), out.data()});
}

}  // namespace device

[[gnu::used]] inline void majority(cuda::stream& queue, std::span<std::uint32_t> out,
                                   payload_row ballots) {
  if (ballots.count < 16) {
    device::count_votes<4>(queue, out, ballots);
  } else if (ballots.count < 256) {
    device::count_votes<8>(queue, out, ballots);
  } else {
    device::count_votes<32>(queue, out, ballots);
  }
}

}  // namespace tutti::kernels
