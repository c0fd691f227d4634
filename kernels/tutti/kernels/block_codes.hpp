#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "tutti/base/queue.hpp"
#include "tutti/kernels/blocks.hpp"
#include "tutti/kernels/elements.hpp"
#include "tutti/kernels/norms.hpp"
#include "tutti/kernels/widest.hpp"

namespace tutti::kernels {

// A block of neighbouring elements has one scale, and each of its elements a code of eight bits: an
// element is worth code * scale. Only the last block may be shorter.
//
// A scale keeps 17 significant bits, rounded up, so that its product with a code is exact and a
// processor that rounds a product and a sum once gives the same bits as one that rounds twice. It
// is never subnormal, so that its inverse is finite.
//
// Devices have no twins of these yet: their queues say so, in `run`.

namespace detail {

/// The scale that gives the largest magnitude, told by its bits, a code of 127. What is not finite
/// has no scale.
inline float scale_for(std::uint32_t largest_bits) {
  constexpr std::uint32_t infinity = 0x7f80'0000u;
  constexpr std::uint32_t dropped = (1u << 7) - 1;
  constexpr float largest = 0x1.0204p121f;  // 127 of it are still finite
  if (largest_bits >= infinity) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  const float exact =
      std::max(std::bit_cast<float>(largest_bits) / 127, std::numeric_limits<float>::min());
  const std::uint32_t rounded_up = (std::bit_cast<std::uint32_t>(exact) + dropped) & ~dropped;
  return std::min(std::bit_cast<float>(rounded_up), largest);
}

/// The integer nearest to value * inverse, ties to even, of at most 127 in magnitude.
///
/// An addition rounds it; between the product and the addition the sign is taken away, so that no
/// compiler joins the two.
inline std::int32_t code_of(float value, float inverse) {
  constexpr float aligned = 1 << 23;
  const auto product = std::bit_cast<std::uint32_t>(value * inverse);
  const float magnitude = std::bit_cast<float>(product & 0x7fff'ffffu) + aligned;
  const std::uint32_t digits =
      std::bit_cast<std::uint32_t>(magnitude) - std::bit_cast<std::uint32_t>(aligned);
  const std::uint32_t negative = 0u - (product >> 31);
  return static_cast<std::int32_t>((digits ^ negative) - negative);
}

// Spans and pointers come by value: a store of bytes may change anything that has an address, and a
// loop that must look again is no vector code.

/// `take(i, code)` sees the code of each element; what has no scale has the code 0.
template <class Take>
void quantise_block(std::span<const float> input, float scale, float inverse, std::int8_t* codes,
                    const Take& take) {
  if (std::isnan(scale)) {
    for (std::size_t i = 0; i < input.size(); ++i) {
      codes[i] = 0;
      take(i, 0, scale);
    }
    return;
  }
  for (std::size_t i = 0; i < input.size(); ++i) {
    const std::int32_t code = code_of(input[i], inverse);
    codes[i] = static_cast<std::int8_t>(code);
    take(i, code, scale);
  }
}

/// Neighbouring blocks that stay in the first-level cache get their scales together, two divisions
/// for all of them. `largest(begin, n)` answers the bits of the largest magnitude of a block, and
/// `take(i, code, scale)` sees what becomes of each element.
template <class Largest, class Take>
void quantise(std::span<const float> input, std::size_t block, float* scales, std::int8_t* codes,
              const Largest& largest, const Take& take) {
  constexpr std::size_t most = 16;
  const std::size_t together = block * std::clamp<std::size_t>(4096 / block, 1, most);
  for_each_block(input.size(), together, [=](std::size_t, std::size_t first, std::size_t all) {
    std::array<std::uint32_t, most> bits{};
    for_each_block(all, block, [&](std::size_t number, std::size_t begin, std::size_t n) {
      bits[number] = largest(first + begin, n);
    });
    std::array<float, most> scale;
    std::array<float, most> inverse;
    for (std::size_t i = 0; i < most; ++i) {
      scale[i] = scale_for(bits[i]);
      inverse[i] = 1 / scale[i];
    }
    std::copy_n(scale.begin(), block_count(all, block), scales + first / block);
    for_each_block(all, block, [&](std::size_t number, std::size_t begin, std::size_t n) {
      begin += first;
      quantise_block(
          input.subspan(begin, n), scale[number], inverse[number], codes + begin,
          [=](std::size_t i, std::int32_t code, float one) { take(begin + i, code, one); });
    });
  });
}

inline void quantise_blocks(std::span<const float> input, std::size_t block, float* scales,
                            std::int8_t* codes) {
  const auto largest = [=](std::size_t begin, std::size_t n) {
    return largest_bits(input.subspan(begin, n));
  };
  quantise(input, block, scales, codes, largest, [](std::size_t, std::int32_t, float) {});
}

inline void add_and_quantise_blocks(std::span<float> into, std::span<const float> from,
                                    std::size_t block, float* scales, std::int8_t* codes) {
  const auto add_and_find_largest = [=](std::size_t begin, std::size_t n) {
    std::uint32_t largest = 0;
    for (std::size_t i = begin; i < begin + n; ++i) {
      into[i] += from[i];
      largest = std::max(largest, key_of(into[i]));
    }
    return largest;
  };
  // What the code stands for is taken off so that zero stays +0.
  const auto subtract = [=](std::size_t i, std::int32_t code, float scale) {
    into[i] = 0 - (static_cast<float>(code) * scale - into[i]);
  };
  quantise(into, block, scales, codes, add_and_find_largest, subtract);
}

inline void add_dequantised(const float* scales, const std::int8_t* codes, std::size_t block,
                            std::span<float> sum) {
  for_each_block(sum.size(), block, [=](std::size_t number, std::size_t begin, std::size_t n) {
    const auto each = sum.subspan(begin, n);
    const float scale = scales[number];
    for (std::size_t i = 0; i < n; ++i) {
      each[i] += static_cast<float>(codes[begin + i]) * scale;
    }
  });
}

}  // namespace detail

/// Writes block_count scales and a code for every element: the integer nearest to element / scale,
/// ties to even, computed as a product with the scale's inverse. A block that holds NaN or an
/// infinity gets the scale NaN.
template <class Queue>
void quantise_blocks(Queue& queue, std::span<const float> input, std::size_t block, float* scales,
                     std::int8_t* codes) {
  queue.run([=] { widest([=] { detail::quantise_blocks(input, block, scales, codes); }); });
}

/// into[i] += from[i]; the same of `into`, and what each code stands for is taken off: a block
/// stays in the first-level cache meanwhile, so that memory is read once and written once.
template <class Queue>
void add_and_quantise_blocks(Queue& queue, std::span<float> into, std::span<const float> from,
                             std::size_t block, float* scales, std::int8_t* codes) {
  queue.run(
      [=] { widest([=] { detail::add_and_quantise_blocks(into, from, block, scales, codes); }); });
}

/// sum[i] += codes[i] * its block's scale.
template <class Queue>
void add_dequantised(Queue& queue, const float* scales, const std::int8_t* codes, std::size_t block,
                     std::span<float> sum) {
  queue.run([=] { widest([=] { detail::add_dequantised(scales, codes, block, sum); }); });
}

}  // namespace tutti::kernels
