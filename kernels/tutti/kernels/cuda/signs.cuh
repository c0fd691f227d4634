#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/base/wire.hpp"
#include "tutti/kernels/cuda/each.cuh"
#include "tutti/kernels/signs.hpp"
#include "tutti/kernels/votes.hpp"

// The definitions of what signs.hpp and votes.hpp declare for a cuda::stream. They write the host's
// words.
namespace tutti::kernels {

[[gnu::used]] inline void pack_signs(cuda::stream& queue, std::span<const float> input,
                                     std::uint32_t* words) {
  const std::size_t n = input.size();
  device::each_pack(queue, sign_words(n), element::pack_words{input.data(), n, words}, input.data(),
                    words);
}

[[gnu::used]] inline void pack_signs_and_subtract(cuda::stream& queue, std::span<float> input,
                                                  const float* magnitude, std::uint32_t* words) {
  const std::size_t n = input.size();
  device::each_pack(queue, sign_words(n),
                    element::pack_words_and_subtract{input.data(), n, magnitude, words},
                    input.data(), words);
}

[[gnu::used]] inline void add_and_pack_signs(cuda::stream& queue, std::span<float> into,
                                             std::span<const float> from, float worth,
                                             std::uint32_t* words) {
  const std::size_t n = into.size();
  device::each_pack(queue, sign_words(n),
                    element::add_and_pack_words{into.data(), from.data(), n, worth, words},
                    into.data(), from.data(), words);
}

namespace device {

/// Decodes the signs of blocks, each of which has a magnitude, or of one block that has none.
template <class How>
void decode_signs(cuda::stream& queue, const std::uint32_t* words, sign_worth worth,
                  std::span<float> out, std::size_t block) {
  using decode = element::decode_signs<How>;
  const decode each{words, worth.magnitude, out.data(), out.size(), block, worth.set};
  if (aligned_for<4>(out.data())) {
    for_each(queue, block_count(out.size(), 4), in_packs<4, decode>{each});
  } else {
    for_each(queue, out.size(), in_packs<1, decode>{each});
  }
}

}  // namespace device

[[gnu::used]] inline void add_signs(cuda::stream& queue, const std::uint32_t* words,
                                    sign_worth worth, std::span<float> sum) {
  device::decode_signs<detail::added>(queue, words, worth, sum, sum.size());
}

[[gnu::used]] inline void unpack_signs(cuda::stream& queue, const std::uint32_t* words,
                                       sign_worth worth, std::span<float> out) {
  device::decode_signs<detail::written>(queue, words, worth, out, out.size());
}

namespace device {

template <unsigned Planes>
void count_votes(cuda::stream& queue, std::span<std::uint32_t> out, payload_row ballots) {
  const auto* first = reinterpret_cast<const std::uint32_t*>(ballots.first);
  each_pack(queue, out.size(),
            element::count_words<Planes>{ballots.first, ballots.stride,
                                         static_cast<std::uint32_t>(ballots.count), out.data()},
            first, first + ballots.stride / sizeof *first, out.data());
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

[[gnu::used]] inline void draw_words(cuda::stream& queue, std::span<std::uint32_t> out,
                                     counted_random random) {
  device::for_each(queue, out.size(), element::draw_word{random, out.data()});
}

}  // namespace tutti::kernels
