#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/base/host_device.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/kernels/counted_random.hpp"
#include "tutti/kernels/elements.hpp"
#include "tutti/kernels/signs.hpp"
#include "tutti/kernels/widest.hpp"

namespace tutti::kernels {

// Elements rounded at random to one of the two powers of two beside them, so that the expected
// value is the element. A power is a byte, the exponent of a float: 0 stands for zero, 255 for
// infinity. Signs are words laid out as in signs.hpp, but they also hold the signs of zeros and
// NaN.

namespace detail {

/// Returns the exponent of the power that a value is rounded to. A random number of 23 bits, added
/// to the magnitude's bits, carries into the exponent as often as the magnitude's digits say. This
/// also works below the least normal float, whose lower neighbour is zero. A value above the
/// largest power of two becomes that power, and NaN becomes infinity.
TUTTI_HD inline std::uint8_t power_of(float value, std::uint64_t random) {
  constexpr std::uint32_t infinity = 255u << 23;
  constexpr std::uint32_t largest = 254;
  const std::uint32_t magnitude = key_of(value);
  const std::uint32_t drawn = (magnitude + static_cast<std::uint32_t>(random >> 41)) >> 23;
  const std::uint32_t finite = drawn < largest ? drawn : largest;
  return static_cast<std::uint8_t>(magnitude >= infinity ? 255 : finite);
}

TUTTI_HD inline bool has_sign(float value) {
  return std::bit_cast<std::uint32_t>(value) >> 31 != 0;
}

TUTTI_HD inline float signed_power(std::uint32_t power, std::uint32_t word, unsigned row) {
  return std::bit_cast<float>(power << 23 | ((word << row) & 0x8000'0000u));
}

inline void add_powers(const std::uint32_t* words, const std::uint8_t* powers,
                       std::span<float> sum) {
  const std::size_t total = sign_words(sum.size());
  for (std::size_t begin = 0; begin < total; begin += tile) {
    const std::size_t count = std::min(tile, total - begin);
    for (unsigned row = 0; row < 32; ++row) {
      const std::size_t first = std::min(row * total + begin, sum.size());
      const auto into = sum.subspan(first, std::min(count, sum.size() - first));
      const std::uint8_t* const from = powers + first;
      const std::uint32_t* const signs = words + begin;
      for (std::size_t i = 0; i < into.size(); ++i) {
        into[i] += signed_power(from[i], signs[i], row);
      }
    }
  }
}

}  // namespace detail

/// Writes sign_words(input.size()) words of signs, and a byte for the power of each element.
/// Element i draws the random number of place i. One pass.
template <host_queue Queue>
void round_to_powers(Queue& queue, std::span<const float> input, const counted_random& random,
                     std::uint32_t* words, std::uint8_t* powers) {
  queue.run([=] {
    widest([=] {
      const auto round = [=](std::size_t i) {
        powers[i] = detail::power_of(input[i], random.bits(i));
        return detail::has_sign(input[i]);
      };
      detail::pack<4>(input.size(), words, round);
    });
  });
}
void round_to_powers(cuda::stream& queue, std::span<const float> input,
                     const counted_random& random, std::uint32_t* words, std::uint8_t* powers);

/// sum[i] += ± its power of two.
template <host_queue Queue>
void add_powers(Queue& queue, const std::uint32_t* words, const std::uint8_t* powers,
                std::span<float> sum) {
  queue.run([=] { widest([=] { detail::add_powers(words, powers, sum); }); });
}
void add_powers(cuda::stream& queue, const std::uint32_t* words, const std::uint8_t* powers,
                std::span<float> sum);

namespace element {

// On a device a thread handles one word of signs. In each of the word's rows neighbouring threads
// read neighbouring elements.

struct round_to_powers {
  const float* input;
  std::size_t n;
  counted_random random;
  std::uint32_t* words;
  std::uint8_t* powers;

  TUTTI_HD void operator()(std::size_t word) const {
    std::uint32_t signs = 0;
    unsigned row = 0;
    for (std::size_t i = word; i < n; i += sign_words(n)) {
      powers[i] = kernels::detail::power_of(input[i], random.bits(i));
      signs |= (kernels::detail::has_sign(input[i]) ? 1u : 0u) << (31 - row++);
    }
    words[word] = signs;
  }
};

struct add_powers {
  const std::uint32_t* words;
  const std::uint8_t* powers;
  float* sum;
  std::size_t n;

  TUTTI_HD void operator()(std::size_t word) const {
    unsigned row = 0;
    for (std::size_t i = word; i < n; i += sign_words(n)) {
      sum[i] += kernels::detail::signed_power(powers[i], words[word], row++);
    }
  }
};

}  // namespace element

}  // namespace tutti::kernels
