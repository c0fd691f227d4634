#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "tutti/base/host_device.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/sum_in_lanes.hpp"
#include "tutti/kernels/blocks.hpp"
#include "tutti/kernels/elements.hpp"
#include "tutti/kernels/signs.hpp"
#include "tutti/kernels/widest.hpp"

namespace tutti::kernels {

// A block of neighbouring elements, a multiple of 32 of them, has one magnitude, and each of its
// elements has a sign. The words of a block are laid out like those of a whole array in signs.hpp,
// and all blocks together have sign_words(n) words.

namespace detail {

inline constexpr std::size_t rows_together = 8;

inline void pack_block_signs(std::span<const float> input, std::size_t block, float* magnitudes,
                             std::uint32_t* words) {
  for_each_block(input.size(), block, [=](std::size_t number, std::size_t begin, std::size_t n) {
    const auto each = input.subspan(begin, n);
    element::keep_mean{magnitudes + number, n}(sum_in_lanes(n, element::magnitude{each.data()}));
    pack_block<rows_together>(
        n, words + begin / 32, [=](std::size_t i) { return each[i] < 0; }, input.subspan(begin));
  });
}

inline void add_and_pack_block_signs(std::span<float> into, std::span<const float> from,
                                     std::size_t block, float* magnitudes, std::uint32_t* words) {
  for_each_block(into.size(), block, [=](std::size_t number, std::size_t begin, std::size_t n) {
    const auto each = into.subspan(begin, n);
    const element::magnitude_of_sum term{each.data(), from.data() + begin};
    element::keep_mean{magnitudes + number, n}(sum_in_lanes(n, term));
    const float positive = magnitudes[number];
    pack_block<rows_together>(n, words + begin / 32,
                              [=](std::size_t i) { return subtract_sign(each[i], positive); });
  });
}

/// Adds one block's signs times its magnitude.
inline void add_block(const std::uint32_t* words, float magnitude, std::span<float> sum) {
  const std::size_t total = sum.size() / 32;
  if (sum.size() % (32 * columns_together) != 0) {
    return decode_signs(words, magnitude, sum, added());
  }
  for (std::size_t begin = 0; begin < total; begin += columns_together) {
    for (std::size_t row = 0; row < 32; row += rows_together) {
      decode_rows(words + begin, columns_together, row, total, magnitude,
                  sum.data() + row * total + begin, added(),
                  std::make_index_sequence<rows_together>());
    }
  }
}

inline void add_block_signs(const float* magnitudes, const std::uint32_t* words, std::size_t block,
                            std::span<float> sum) {
  for_each_block(sum.size(), block, [=](std::size_t number, std::size_t begin, std::size_t n) {
    add_block(words + begin / 32, magnitudes[number], sum.subspan(begin, n));
  });
}

}  // namespace detail

/// Writes block_count mean magnitudes and sign_words(input.size()) words of signs. `block` is a
/// multiple of 32.
template <host_queue Queue>
void pack_block_signs(Queue& queue, std::span<const float> input, std::size_t block,
                      float* magnitudes, std::uint32_t* words) {
  queue.run([=] { widest([=] { detail::pack_block_signs(input, block, magnitudes, words); }); });
}
void pack_block_signs(cuda::stream& queue, std::span<const float> input, std::size_t block,
                      float* magnitudes, std::uint32_t* words);

/// into[i] += from[i]; then packs the signs of `into`, and subtracts what each stands for. A block
/// stays in the first-level cache meanwhile, so that memory is read once and written once.
template <host_queue Queue>
void add_and_pack_block_signs(Queue& queue, std::span<float> into, std::span<const float> from,
                              std::size_t block, float* magnitudes, std::uint32_t* words) {
  queue.run([=] {
    widest([=] { detail::add_and_pack_block_signs(into, from, block, magnitudes, words); });
  });
}
void add_and_pack_block_signs(cuda::stream& queue, std::span<float> into,
                              std::span<const float> from, std::size_t block, float* magnitudes,
                              std::uint32_t* words);

/// sum[i] += ± its block's magnitude.
template <host_queue Queue>
void add_block_signs(Queue& queue, const float* magnitudes, const std::uint32_t* words,
                     std::size_t block, std::span<float> sum) {
  queue.run([=] { widest([=] { detail::add_block_signs(magnitudes, words, block, sum); }); });
}
void add_block_signs(cuda::stream& queue, const float* magnitudes, const std::uint32_t* words,
                     std::size_t block, std::span<float> sum);

namespace element {

// On a device, `block_lanes` threads share a block. Each reads every sixteenth element, because
// that is the order in which hosts add them up, and then packs one or more words of signs. The
// block is read twice, the second time from a cache.

struct magnitude_of_both {
  const float* a;
  const float* b;
  TUTTI_HD float operator()(std::size_t i) const { return without_sign(a[i] + b[i]); }
};

/// Returns the mean of `term(i)` for i in [0, n).
template <class Lanes, class Term>
TUTTI_HD float mean_of_block(const Lanes& lanes, std::size_t n, const Term& term) {
  float mean = 0;
  keep_mean{&mean, n}(lanes.add_up([&](std::size_t lane) {
    double sum = 0;
    for (std::size_t i = lane; i < n; i += block_lanes) {
      sum += static_cast<double>(term(i));
    }
    return sum;
  }));
  return mean;
}

/// Calls `f.pack<1>(word)` for every word of n elements' signs.
template <class Lanes, class F>
TUTTI_HD void for_each_word(const Lanes& lanes, std::size_t n, const F& f) {
  lanes.each([&](std::size_t lane) {
    for (std::size_t word = lane; word < sign_words(n); word += block_lanes) {
      f.template pack<1>(word);
    }
  });
}

struct pack_block {
  const float* input;
  std::size_t n;
  std::size_t block;
  float* magnitudes;
  std::uint32_t* words;

  template <class Lanes>
  TUTTI_HD void operator()(const Lanes& lanes, std::size_t number) const {
    const block_of here(number, block, n);
    const float* const from = input + here.begin;
    magnitudes[number] = mean_of_block(lanes, here.n, magnitude{from});
    for_each_word(lanes, here.n, pack_words{from, here.n, words + here.begin / 32});
  }
};

struct add_and_pack_block {
  float* into;
  const float* from;
  std::size_t n;
  std::size_t block;
  float* magnitudes;
  std::uint32_t* words;

  template <class Lanes>
  TUTTI_HD void operator()(const Lanes& lanes, std::size_t number) const {
    const block_of here(number, block, n);
    float* const sum = into + here.begin;
    const float* const added = from + here.begin;
    const float mean = mean_of_block(lanes, here.n, magnitude_of_both{sum, added});
    magnitudes[number] = mean;
    for_each_word(lanes, here.n,
                  add_and_pack_words{sum, added, here.n, mean, words + here.begin / 32});
  }
};

}  // namespace element

}  // namespace tutti::kernels
