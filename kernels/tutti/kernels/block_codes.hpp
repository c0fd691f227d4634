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

// A block of neighbouring elements has one scale, and each of its elements has a code of eight
// bits. An element's value is the number that its code stands for, times the scale. Only the last
// block may be shorter.
//
// A code type has these functions. `scale_for` returns the scale for the bits of a block's largest
// magnitude. `held` limits a value to the range that the largest scale covers, and `saturates`
// tells whether a block of a given scale may hold values beyond that range. `nearest(value, inverse
// of the scale)` returns the code, and `worth` the number that a code stands for. The product of
// that number and the scale is exact, so that a processor that rounds a product and a sum once
// gives the same bits as one that rounds twice. A scale is never subnormal, so that its inverse is
// finite.

/// The code of an element, and the number that the code stands for.
template <class Stored>
struct coded {
  Stored code{};
  float number{};
};

/// Returns the scale with these bits, or NaN if the block's largest magnitude is not finite.
TUTTI_HD inline float scale_or_nan(std::uint32_t bits, std::uint32_t largest_bits) {
  constexpr std::uint32_t quiet_nan = 0x7fc0'0000u;
  return std::bit_cast<float>(largest_bits < infinity_key ? bits : quiet_nan);
}

/// Integers from -127 to 127. A scale keeps 17 significant bits, rounded up.
struct int8_code {
  using stored = std::int8_t;

  /// Returns the scale that gives the largest magnitude a code of 127; NaN if that magnitude is not
  /// finite.
  TUTTI_HD static float scale_for(std::uint32_t largest_bits) {
    constexpr std::uint32_t dropped = (1u << 7) - 1;
    constexpr auto least = std::bit_cast<std::uint32_t>(std::numeric_limits<float>::min());
    constexpr auto most = std::bit_cast<std::uint32_t>(0x1.0204p121f);  // 127 times it is finite
    const auto exact = std::bit_cast<std::uint32_t>(std::bit_cast<float>(largest_bits) / 127);
    const std::uint32_t normal = exact < least ? least : exact;
    const std::uint32_t rounded_up = (normal + dropped) & ~dropped;
    const std::uint32_t held = rounded_up > most ? most : rounded_up;
    return scale_or_nan(held, largest_bits);
  }

  static constexpr bool saturates(float) { return false; }
  TUTTI_HD static float held(float value) { return value; }

  /// Returns the integer nearest to value * inverse, ties to even, of at most 127 in magnitude.
  ///
  /// A float addition does the rounding, and leaves the integer in the sum's last bits. Between the
  /// product and the addition stands a limit that no product reaches, so that no compiler fuses the
  /// two.
  TUTTI_HD static coded<stored> nearest(float value, float inverse) {
    constexpr std::int32_t beyond = 0x4300'0000;  // the bits of 128
    constexpr float aligned = 3 << 22;
    const auto product = std::bit_cast<std::int32_t>(value * inverse);
    const float sum = std::bit_cast<float>(product < beyond ? product : beyond) + aligned;
    return {static_cast<stored>(std::bit_cast<std::uint32_t>(sum)), sum - aligned};
  }

  TUTTI_HD static float worth(stored code) { return code; }
};

/// Numbers of an eight-bit floating-point format of cast.hpp. A scale is a power of two, so that
/// dividing by it and multiplying with it are exact.
template <class Format>
struct scaled_code {
  using stored = std::uint8_t;

  /// Returns the least power of two that brings the largest magnitude to the format's largest
  /// number or below, but at most the greatest whose product with that number is a finite float.
  /// NaN if the magnitude is not finite.
  TUTTI_HD static float scale_for(std::uint32_t largest_bits) {
    constexpr std::uint32_t digits = top & ~infinity_key;
    constexpr std::uint32_t least = above_one + (1u << 23);
    const std::uint32_t power = (largest_bits + ((1u << 23) - 1 - digits)) & infinity_key;
    const std::uint32_t held = power < least ? least : power > greatest ? greatest : power;
    return scale_or_nan(held - above_one, largest_bits);
  }

  static bool saturates(float scale) { return scale == greatest_scale; }

  TUTTI_HD static float held(float value) {
    constexpr float most = Format::largest * greatest_scale;
    return value > most ? most : value < -most ? -most : value;
  }

  /// Returns the number nearest to value * inverse, and its code. A float addition rounds to the
  /// digits that the format has at this exponent, or at its least exponent, and a subtraction of
  /// the addend leaves the number. The last bits of the addend are the code of its sign and
  /// exponent, without digits, and the addition puts the digits there. If a code were put together
  /// from parts afterwards, compilers would narrow each part to eight bits on its own.
  TUTTI_HD static coded<stored> nearest(float value, float inverse) {
    constexpr std::int32_t least = Format::least_normal;
    constexpr std::int32_t up = (Format::dropped << 23) - (least >> Format::dropped);
    constexpr auto both_signs = static_cast<std::int32_t>(0x8000'0080u);
    const float scaled = value * inverse;  // exact, so a compiler may fuse it with the addition
    const auto bits = std::bit_cast<std::int32_t>(scaled);
    const std::int32_t its_exponent = bits & (255 << 23);
    const std::int32_t exponent = its_exponent < least ? least : its_exponent;
    const std::int32_t magnitude = exponent + (exponent >> Format::dropped) + up;
    const float addend = std::bit_cast<float>(magnitude | (bits >> 31 & both_signs));
    const float rounded = scaled + addend;
    return {static_cast<stored>(std::bit_cast<std::uint32_t>(rounded)), rounded - addend};
  }

  TUTTI_HD static float worth(stored code) { return Format::to_float(code); }

 private:
  static constexpr auto top = std::bit_cast<std::uint32_t>(Format::largest);
  static constexpr std::uint32_t above_one = (top & infinity_key) - (127u << 23);
  static constexpr std::uint32_t greatest = 254u << 23;  // the largest exponent of a finite float
  static constexpr float greatest_scale = std::bit_cast<float>(greatest - above_one);
};

namespace detail {

/// Subtracts what a code stands for, so that a result of zero is +0.
TUTTI_HD inline void subtract_number(float& value, float number, float scale) {
  value = 0 - (number * scale - value);
}

// The lambdas below capture spans and pointers by value. A store of bytes may change anything that
// has an address, and a loop that must reload its pointers is not vectorised.

/// The elements of an array that is only read.
struct elements_to_quantise {
  std::span<const float> input;

  std::uint32_t largest(std::size_t begin, std::size_t n) const {
    return largest_bits(input.subspan(begin, n));
  }
  float operator[](std::size_t i) const { return input[i]; }
  void keep_rest(std::size_t, float, float) const {}
  template <class F>
  void each(std::size_t begin, std::size_t n, const F& f) const {
    for_each_prefetching(begin, n, f, input);
  }
};

/// The elements of an array to which an addend is added when the largest is looked for. What its
/// code stands for is subtracted from each.
struct sums_to_quantise {
  std::span<float> into;
  std::span<const float> from;

  std::uint32_t largest(std::size_t begin, std::size_t n) const {
    std::uint32_t found = 0;
    for (std::size_t i = begin; i < begin + n; ++i) {
      into[i] += from[i];
      found = std::max(found, key_of(into[i]));
    }
    return found;
  }
  float operator[](std::size_t i) const { return into[i]; }
  void keep_rest(std::size_t i, float number, float scale) const {
    subtract_number(into[i], number, scale);
  }
  template <class F>
  void each(std::size_t begin, std::size_t n, const F& f) const {
    for_each_prefetching(begin, n, f, into, from);
  }
};

/// Quantises n elements from `begin` on, which are one block. If the scale is NaN, all codes are 0.
template <class Code, class Elements>
void quantise_block(const Elements elements, std::size_t begin, std::size_t n, float scale,
                    float inverse, typename Code::stored* codes) {
  if (std::isnan(scale)) {
    for (std::size_t i = begin; i < begin + n; ++i) {
      codes[i] = 0;
      elements.keep_rest(i, 0.0F, scale);
    }
    return;
  }
  const auto quantise_all = [=](const auto& held) {
    elements.each(begin, n, [=](std::size_t i) {
      const coded<typename Code::stored> its = Code::nearest(held(elements[i]), inverse);
      codes[i] = its.code;
      elements.keep_rest(i, its.number, scale);
    });
  };
  if (Code::saturates(scale)) {
    quantise_all(Code::held);
  } else {
    quantise_all([](float value) { return value; });
  }
}

/// Quantises all blocks of n elements. Neighbouring blocks that stay in the first-level cache get
/// their scales together, so that the divisions for these are vectorised. They are few, so that
/// memory does not stop sending what comes next while they are quantised.
template <class Code, class Elements>
void quantise(const Elements elements, std::size_t n, std::size_t block, float* scales,
              typename Code::stored* codes) {
  constexpr std::size_t most = 16;
  const std::size_t blocks = std::clamp<std::size_t>(512 / block, 1, most);
  for_each_block(n, block * blocks, [=](std::size_t group, std::size_t first, std::size_t all) {
    std::array<std::uint32_t, most> bits{};
    for_each_block(all, block, [&](std::size_t number, std::size_t begin, std::size_t count) {
      bits[number] = elements.largest(first + begin, count);
    });
    std::array<float, most> scale;
    std::array<float, most> inverse;
    for (std::size_t i = 0; i < blocks; ++i) {
      scale[i] = Code::scale_for(bits[i]);
      inverse[i] = 1 / scale[i];
    }
    for_each_block(all, block, [&](std::size_t number, std::size_t begin, std::size_t count) {
      scales[group * blocks + number] = scale[number];
      quantise_block<Code>(elements, first + begin, count, scale[number], inverse[number], codes);
    });
  });
}

template <class Code>
void add_dequantised(const float* scales, const typename Code::stored* codes, std::size_t block,
                     std::span<float> sum) {
  for_each_block(sum.size(), block, [=](std::size_t number, std::size_t begin, std::size_t n) {
    const auto each = sum.subspan(begin, n);
    const float scale = scales[number];
    for (std::size_t i = 0; i < n; ++i) {
      each[i] += Code::worth(codes[begin + i]) * scale;
    }
  });
}

}  // namespace detail

/// Writes block_count scales, and a code for every element: that of the number nearest to element /
/// scale, ties to even, computed as a product with the scale's inverse. A block that holds NaN or
/// an infinity gets the scale NaN.
template <class Code, host_queue Queue>
void quantise_blocks(Queue& queue, std::span<const float> input, std::size_t block, float* scales,
                     typename Code::stored* codes) {
  queue.run([=] {
    widest([=] {
      detail::quantise<Code>(detail::elements_to_quantise{input}, input.size(), block, scales,
                             codes);
    });
  });
}
template <class Code>
void quantise_blocks(cuda::stream& queue, std::span<const float> input, std::size_t block,
                     float* scales, typename Code::stored* codes);

/// into[i] += from[i]; then quantises `into`, and subtracts what each code stands for. A block
/// stays in the first-level cache meanwhile, so that memory is read once and written once.
template <class Code, host_queue Queue>
void add_and_quantise_blocks(Queue& queue, std::span<float> into, std::span<const float> from,
                             std::size_t block, float* scales, typename Code::stored* codes) {
  queue.run([=] {
    widest([=] {
      detail::quantise<Code>(detail::sums_to_quantise{into, from}, into.size(), block, scales,
                             codes);
    });
  });
}
template <class Code>
void add_and_quantise_blocks(cuda::stream& queue, std::span<float> into,
                             std::span<const float> from, std::size_t block, float* scales,
                             typename Code::stored* codes);

/// sum[i] += codes[i] * its block's scale.
template <class Code, host_queue Queue>
void add_dequantised(Queue& queue, const float* scales, const typename Code::stored* codes,
                     std::size_t block, std::span<float> sum) {
  queue.run([=] { widest([=] { detail::add_dequantised<Code>(scales, codes, block, sum); }); });
}
template <class Code>
void add_dequantised(cuda::stream& queue, const float* scales, const typename Code::stored* codes,
                     std::size_t block, std::span<float> sum);

namespace element {

// On a device, `block_lanes` threads share a block. They read it twice, to find its scale and to
// quantise it. The second read comes from the first-level cache for blocks of up to some thousand
// elements.

/// Quantises the elements of a block of a given largest magnitude.
template <class Code>
struct quantiser {
  float scale;
  float inverse;

  TUTTI_HD explicit quantiser(std::uint32_t largest_bits)
      : scale(Code::scale_for(largest_bits)), inverse(1 / scale) {}

  TUTTI_HD coded<typename Code::stored> nearest(float value) const {
    return scale != scale ? coded<typename Code::stored>{}
                          : Code::nearest(Code::held(value), inverse);
  }
};

template <class Code>
struct quantise_block {
  const float* input;
  std::size_t n;
  std::size_t block;
  float* scales;
  typename Code::stored* codes;

  template <class Lanes>
  TUTTI_HD void operator()(const Lanes& lanes, std::size_t number) const {
    const block_of here(number, block, n);
    const float* const from = input + here.begin;
    const quantiser<Code> quantised(lanes.largest([&](std::size_t lane) {
      std::uint32_t found = 0;
      const auto look = [&found](float value) {
        found = key_of(value) > found ? key_of(value) : found;
      };
      share_in_fours(lane, block_lanes, here.n, look, from);
      return found;
    }));
    scales[number] = quantised.scale;
    lanes.each([&](std::size_t lane) {
      const auto quantise = [&quantised](float value, typename Code::stored& code) {
        code = quantised.nearest(value).code;
      };
      share_in_fours(lane, block_lanes, here.n, quantise, from,
                     only_written<typename Code::stored>{codes + here.begin});
    });
  }
};

template <class Code>
struct add_and_quantise_block {
  float* into;
  const float* from;
  std::size_t n;
  std::size_t block;
  float* scales;
  typename Code::stored* codes;

  template <class Lanes>
  TUTTI_HD void operator()(const Lanes& lanes, std::size_t number) const {
    const block_of here(number, block, n);
    float* const sum = into + here.begin;
    const float* const added = from + here.begin;
    const quantiser<Code> quantised(lanes.largest([&](std::size_t lane) {
      std::uint32_t found = 0;
      const auto look = [&found](float a, float b) {
        found = key_of(a + b) > found ? key_of(a + b) : found;
      };
      share_in_fours(lane, block_lanes, here.n, look, static_cast<const float*>(sum), added);
      return found;
    }));
    scales[number] = quantised.scale;
    lanes.each([&](std::size_t lane) {
      const auto quantise = [&quantised](float& a, float b, typename Code::stored& code) {
        a += b;
        const coded<typename Code::stored> its = quantised.nearest(a);
        kernels::detail::subtract_number(a, its.number, quantised.scale);
        code = its.code;
      };
      share_in_fours(lane, block_lanes, here.n, quantise, sum, added,
                     only_written<typename Code::stored>{codes + here.begin});
    });
  }
};

template <class Code>
struct add_dequantised_block {
  const float* scales;
  const typename Code::stored* codes;
  float* sum;
  std::size_t n;
  std::size_t block;

  template <class Lanes>
  TUTTI_HD void operator()(const Lanes& lanes, std::size_t number) const {
    const block_of here(number, block, n);
    const float scale = scales[number];
    lanes.each([&](std::size_t lane) {
      const auto dequantise = [scale](typename Code::stored code, float& to) {
        to += Code::worth(code) * scale;
      };
      share_in_fours(lane, block_lanes, here.n, dequantise, codes + here.begin, sum + here.begin);
    });
  }
};

}  // namespace element

}  // namespace tutti::kernels
