#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "tutti/base/host_device.hpp"
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

namespace detail {

/// The scale that gives the largest magnitude, told by its bits, a code of 127. What is not finite
/// has no scale.
TUTTI_HD inline float scale_for(std::uint32_t largest_bits) {
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
TUTTI_HD inline std::int32_t code_of(float value, float inverse) {
  constexpr float aligned = 1 << 23;
  const auto product = std::bit_cast<std::uint32_t>(value * inverse);
  const float magnitude = std::bit_cast<float>(product & 0x7fff'ffffu) + aligned;
  const std::uint32_t digits =
      std::bit_cast<std::uint32_t>(magnitude) - std::bit_cast<std::uint32_t>(aligned);
  const std::uint32_t negative = 0u - (product >> 31);
  return static_cast<std::int32_t>((digits ^ negative) - negative);
}

/// Takes off what a code stands for, so that zero stays +0.
TUTTI_HD inline void subtract_code(float& value, std::int32_t code, float scale) {
  value = 0 - (static_cast<float>(code) * scale - value);
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
  const auto subtract = [=](std::size_t i, std::int32_t code, float scale) {
    subtract_code(into[i], code, scale);
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
template <host_queue Queue>
void quantise_blocks(Queue& queue, std::span<const float> input, std::size_t block, float* scales,
                     std::int8_t* codes) {
  queue.run([=] { widest([=] { detail::quantise_blocks(input, block, scales, codes); }); });
}
void quantise_blocks(cuda::stream& queue, std::span<const float> input, std::size_t block,
                     float* scales, std::int8_t* codes);

/// into[i] += from[i]; then the codes of `into`, and what each stands for is taken off: a block
/// stays in the first-level cache meanwhile, so that memory is read once and written once.
template <host_queue Queue>
void add_and_quantise_blocks(Queue& queue, std::span<float> into, std::span<const float> from,
                             std::size_t block, float* scales, std::int8_t* codes) {
  queue.run(
      [=] { widest([=] { detail::add_and_quantise_blocks(into, from, block, scales, codes); }); });
}
void add_and_quantise_blocks(cuda::stream& queue, std::span<float> into,
                             std::span<const float> from, std::size_t block, float* scales,
                             std::int8_t* codes);

/// sum[i] += codes[i] * its block's scale.
template <host_queue Queue>
void add_dequantised(Queue& queue, const float* scales, const std::int8_t* codes, std::size_t block,
                     std::span<float> sum) {
  queue.run([=] { widest([=] { detail::add_dequantised(scales, codes, block, sum); }); });
}
void add_dequantised(cuda::stream& queue, const float* scales, const std::int8_t* codes,
                     std::size_t block, std::span<float> sum);

namespace element {

// Lanes of a device share a block. They read it twice, to find its scale and to use it: what lies
// in the first-level cache comes from memory once, and that are blocks of some thousand elements.

/// What a block's largest magnitude makes of its elements.
struct quantiser {
  float scale;
  float inverse;

  TUTTI_HD explicit quantiser(std::uint32_t largest_bits)
      : scale(kernels::detail::scale_for(largest_bits)), inverse(1 / scale) {}

  TUTTI_HD std::int32_t code(float value) const {
    return scale != scale ? 0 : kernels::detail::code_of(value, inverse);
  }
};

struct quantise_block {
  const float* input;
  std::size_t n;
  std::size_t block;
  float* scales;
  std::int8_t* codes;

  template <class Lanes>
  TUTTI_HD void operator()(const Lanes& lanes, std::size_t number) const {
    const block_of here(number, block, n);
    const float* const from = input + here.begin;
    const quantiser quantised(lanes.largest([&](std::size_t lane) {
      std::uint32_t found = 0;
      const auto look = [&found](float value) {
        found = key_of(value) > found ? key_of(value) : found;
      };
      share_in_fours(lane, block_lanes, here.n, look, from);
      return found;
    }));
    scales[number] = quantised.scale;
    lanes.each([&](std::size_t lane) {
      const auto quantise = [&quantised](float value, std::int8_t& code) {
        code = static_cast<std::int8_t>(quantised.code(value));
      };
      share_in_fours(lane, block_lanes, here.n, quantise, from,
                     only_written<std::int8_t>{codes + here.begin});
    });
  }
};

struct add_and_quantise_block {
  float* into;
  const float* from;
  std::size_t n;
  std::size_t block;
  float* scales;
  std::int8_t* codes;

  template <class Lanes>
  TUTTI_HD void operator()(const Lanes& lanes, std::size_t number) const {
    const block_of here(number, block, n);
    float* const sum = into + here.begin;
    const float* const added = from + here.begin;
    const quantiser quantised(lanes.largest([&](std::size_t lane) {
      std::uint32_t found = 0;
      const auto look = [&found](float a, float b) {
        found = key_of(a + b) > found ? key_of(a + b) : found;
      };
      share_in_fours(lane, block_lanes, here.n, look, static_cast<const float*>(sum), added);
      return found;
    }));
    scales[number] = quantised.scale;
    lanes.each([&](std::size_t lane) {
      const auto quantise = [&quantised](float& a, float b, std::int8_t& code) {
        a += b;
        const std::int32_t taken = quantised.code(a);
        kernels::detail::subtract_code(a, taken, quantised.scale);
        code = static_cast<std::int8_t>(taken);
      };
      share_in_fours(lane, block_lanes, here.n, quantise, sum, added,
                     only_written<std::int8_t>{codes + here.begin});
    });
  }
};

struct add_dequantised_block {
  const float* scales;
  const std::int8_t* codes;
  float* sum;
  std::size_t n;
  std::size_t block;

  template <class Lanes>
  TUTTI_HD void operator()(const Lanes& lanes, std::size_t number) const {
    const block_of here(number, block, n);
    const float scale = scales[number];
    lanes.each([&](std::size_t lane) {
      const auto dequantise = [scale](std::int8_t code, float& to) {
        to += static_cast<float>(code) * scale;
      };
      share_in_fours(lane, block_lanes, here.n, dequantise, codes + here.begin, sum + here.begin);
    });
  }
};

}  // namespace element

}  // namespace tutti::kernels
