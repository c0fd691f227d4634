#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/base/host_device.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/units.hpp"
#include "tutti/kernels/blocks.hpp"
#include "tutti/kernels/elements.hpp"
#include "tutti/kernels/widest.hpp"

namespace tutti::kernels {

// An element has one of a few values, and a code of one, two or four bits for it. Neighbouring
// elements share a byte, the first in its most significant bits, and the last word of 32 bits is
// filled up with zeros.
//
// A code type has `bits`, the code `of(value)`, and what a code is `worth`. `turned` is 3 if the
// bytes of a word are stored in reverse order, else 0. `here()` returns the code with what it has
// to look up in memory. `times(factor)` returns the code of values that are multiplied by `factor`.

/// MXNet's code of one bit: 1, worth the magnitude, which is 1, for values above the threshold; 0,
/// worth its negative, for all others and for NaN.
struct one_bit_code {
  static constexpr unsigned bits = 1;
  static constexpr std::size_t turned = 0;
  float threshold;
  float magnitude{1};

  one_bit_code times(float factor) const { return {factor * threshold, factor * magnitude}; }
  TUTTI_HD one_bit_code here() const { return *this; }
  TUTTI_HD std::uint32_t of(float value) const { return value > threshold ? 1 : 0; }
  TUTTI_HD float worth(std::uint32_t code) const { return code != 0 ? magnitude : -magnitude; }
};

/// MXNet's code of two bits: 3, worth the threshold, for values from the threshold up; 2, worth its
/// negative, for values from the negative threshold down; 0, worth 0, between them and for NaN.
///
/// What a code is worth is computed from its bits, and a code's last step is a shift, because g++
/// would otherwise narrow every comparison to a byte on its own where both are needed.
struct two_bit_code {
  static constexpr unsigned bits = 2;
  static constexpr std::size_t turned = 0;
  float threshold;

  two_bit_code times(float factor) const { return {factor * threshold}; }
  TUTTI_HD two_bit_code here() const { return *this; }
  TUTTI_HD std::uint32_t of(float value) const {
    const std::uint32_t above = value >= threshold ? 3u << 30 : 0;
    const std::uint32_t below = value <= -threshold ? 2u << 30 : 0;
    return (above | below) >> 30;
  }
  TUTTI_HD float worth(std::uint32_t code) const {
    const std::uint32_t either = std::bit_cast<std::uint32_t>(-threshold) ^ code << 31;
    const auto some = static_cast<std::uint32_t>(static_cast<std::int32_t>(code << 30) >> 31);
    return std::bit_cast<float>(either & some);
  }
};

/// BytePS's code of one bit, with the first element in the top bit of a word: 1 for values below
/// zero. A 0 is worth the magnitude, which is 1 if there is none to look up, and a 1 is worth its
/// negative.
struct sign_code {
  static constexpr unsigned bits = 1;
  static constexpr std::size_t turned = 3;
  const float* magnitude{};
  float looked_up{1};

  TUTTI_HD sign_code here() const { return {magnitude, magnitude == nullptr ? 1.0f : *magnitude}; }
  TUTTI_HD std::uint32_t of(float value) const { return value < 0 ? 1 : 0; }
  TUTTI_HD float worth(std::uint32_t code) const { return code != 0 ? -looked_up : looked_up; }
};

/// A floating-point number of a sign and three bits of exponent, E3M0. Codes 1 to 7 are seven
/// powers of two, up to the one nearest to the magnitude that is looked up; a value gets the one
/// nearest to its magnitude. 0 is zero, and a negative value's code is 8 more. Magnitudes half-way
/// between two numbers go to the greater. No power is below 2^-125. If an infinity or NaN is looked
/// up, all codes are worth NaN.
struct e3m0_code {
  static constexpr unsigned bits = 4;
  static constexpr std::size_t turned = 0;
  const float* largest;
  std::uint32_t greatest{};  ///< the greatest power's exponent, as in a float's bits

  TUTTI_HD e3m0_code here() const { return {largest, exponent_of(key_of(*largest))}; }

  TUTTI_HD std::uint32_t of(float value) const {
    const std::uint32_t key = key_of(value);
    const std::uint32_t nearest = nearest_exponent(key) + 7;
    const std::uint32_t power = nearest <= greatest ? 1 : nearest - greatest;
    const std::uint32_t held = power > 7 ? 7 : power;
    const std::uint32_t sign = std::bit_cast<std::uint32_t>(value) >> 31 << 3;
    return key < (greatest - 7) << 23 ? 0 : held | sign;
  }
  TUTTI_HD float worth(std::uint32_t code) const {
    const std::uint32_t power = code & 7;
    const std::uint32_t number = power == 0 ? 0 : (greatest - 7 + power) << 23;
    const std::uint32_t magnitude = greatest == of_no_number ? 0x7fc0'0000u : number;
    return std::bit_cast<float>(magnitude | code >> 3 << 31);
  }

 private:
  static constexpr std::uint32_t of_no_number = 255;

  TUTTI_HD static std::uint32_t nearest_exponent(std::uint32_t key) {
    return (key + (1u << 22)) >> 23;
  }
  TUTTI_HD static std::uint32_t exponent_of(std::uint32_t key) {
    constexpr std::uint32_t least = 8;
    const std::uint32_t nearest = nearest_exponent(key);
    const std::uint32_t finite = nearest < least ? least : nearest > 254 ? 254 : nearest;
    return key >= of_no_number << 23 ? of_no_number : finite;
  }
};

template <class Code>
constexpr std::size_t codes_in_byte = 8 / Code::bits;

/// How many bytes the codes of n elements take, in whole words.
template <class Code>
constexpr std::size_t code_bytes(std::size_t n) {
  return round_up(n, 4 * codes_in_byte<Code>) / codes_in_byte<Code>;
}

namespace detail {

/// Subtracts what the value's code is worth, so that a result of zero is +0, and returns the code.
template <class Code>
TUTTI_HD std::uint32_t subtract_code(const Code& code, float& value) {
  const std::uint32_t its = code.of(value);
  value = 0 - (code.worth(its) - value);
  return its;
}

/// How many elements' codes, a byte each, are made before they are packed; they stay in the
/// first-level cache.
inline constexpr std::size_t codes_together = 1024;

/// Packs `code_of(i)`, which is made from element i of each of `arrays`, for every element i,
/// calling it once for each.
template <class Code, class CodeOf, class... Arrays>
void pack_codes(std::size_t elements, std::byte* out, const CodeOf& code_of,
                const Arrays... arrays) {
  constexpr std::size_t in_byte = codes_in_byte<Code>;
  std::uint8_t codes[codes_together];
  for (std::size_t begin = 0; begin < elements; begin += codes_together) {
    const std::size_t count = std::min(codes_together, elements - begin);
    std::uint8_t* const written = codes;
    const auto write = [=](std::size_t i) {
      written[i - begin] = static_cast<std::uint8_t>(code_of(i));
    };
    for_each_prefetching(begin, count, write, arrays...);
    const std::size_t bytes = code_bytes<Code>(count);
    std::fill(codes + count, codes + bytes * in_byte, std::uint8_t{0});
    std::byte* const packed = out + begin / in_byte;
    for (std::size_t byte = 0; byte < bytes; ++byte) {
      std::uint32_t together = 0;
      for (std::size_t each = 0; each < in_byte; ++each) {
        together = together << Code::bits | codes[byte * in_byte + each];
      }
      packed[byte ^ Code::turned] = static_cast<std::byte>(together);
    }
  }
}

/// Returns the code of element `each` of a byte.
template <class Code>
TUTTI_HD std::uint32_t code_in(std::uint32_t byte, std::size_t each) {
  return byte >> (8 - Code::bits * (each + 1)) & ((1u << Code::bits) - 1);
}

template <class Code>
void add_codes(const Code code, const std::byte* in, std::span<float> sum) {
  constexpr std::size_t in_byte = codes_in_byte<Code>;
  std::uint8_t codes[codes_together];
  for (std::size_t begin = 0; begin < sum.size(); begin += codes_together) {
    const std::size_t count = std::min(codes_together, sum.size() - begin);
    const std::byte* const packed = in + begin / in_byte;
    for (std::size_t byte = 0; byte < code_bytes<Code>(count); ++byte) {
      for (std::size_t each = 0; each < in_byte; ++each) {
        codes[byte * in_byte + each] = static_cast<std::uint8_t>(
            code_in<Code>(std::to_integer<std::uint32_t>(packed[byte ^ Code::turned]), each));
      }
    }
    float* const into = sum.data() + begin;
    for (std::size_t i = 0; i < count; ++i) {
      into[i] += code.worth(codes[i]);
    }
  }
}

}  // namespace detail

/// Packs the codes of `input` into code_bytes<Code>(input.size()) bytes.
template <class Code, host_queue Queue>
void pack_codes(Queue& queue, Code code, std::span<const float> input, std::byte* out) {
  queue.run([=] {
    const Code its = code.here();
    widest([=] {
      detail::pack_codes<Code>(
          input.size(), out, [=](std::size_t i) { return its.of(input[i]); }, input);
    });
  });
}
template <class Code>
void pack_codes(cuda::stream& queue, Code code, std::span<const float> input, std::byte* out);

/// Packs the codes of `input`, and subtracts what each is worth.
template <class Code, host_queue Queue>
void pack_codes_and_subtract(Queue& queue, Code code, std::span<float> input, std::byte* out) {
  queue.run([=] {
    const Code its = code.here();
    widest([=] {
      detail::pack_codes<Code>(
          input.size(), out, [=](std::size_t i) { return detail::subtract_code(its, input[i]); },
          input);
    });
  });
}
template <class Code>
void pack_codes_and_subtract(cuda::stream& queue, Code code, std::span<float> input,
                             std::byte* out);

/// into[i] += from[i]; then packs the codes of `into`, and subtracts what each is worth. One pass.
template <class Code, host_queue Queue>
void add_and_pack_codes(Queue& queue, Code code, std::span<float> into, std::span<const float> from,
                        std::byte* out) {
  queue.run([=] {
    const Code its = code.here();
    widest([=] {
      detail::pack_codes<Code>(
          into.size(), out,
          [=](std::size_t i) {
            float both = into[i] + from[i];
            const std::uint32_t taken = detail::subtract_code(its, both);
            into[i] = both;
            return taken;
          },
          into, from);
    });
  });
}
template <class Code>
void add_and_pack_codes(cuda::stream& queue, Code code, std::span<float> into,
                        std::span<const float> from, std::byte* out);

/// sum[i] += what its code is worth.
template <class Code, host_queue Queue>
void add_codes(Queue& queue, Code code, const std::byte* in, std::span<float> sum) {
  queue.run([=] {
    const Code its = code.here();
    widest([=] { detail::add_codes(its, in, sum); });
  });
}
template <class Code>
void add_codes(cuda::stream& queue, Code code, const std::byte* in, std::span<float> sum);

namespace element {

// On a device a thread handles one byte, so that neighbouring threads read neighbouring elements
// and write neighbouring bytes.

/// Packs one byte. `take(i)` returns the code of element i, and is called for i < n only.
template <class Code, class Take>
TUTTI_HD void pack_byte(std::size_t byte, std::size_t n, std::byte* out, const Take& take) {
  std::uint32_t together = 0;
  for (std::size_t i = byte * codes_in_byte<Code>; i < (byte + 1) * codes_in_byte<Code>; ++i) {
    together = together << Code::bits | (i < n ? take(i) : 0);
  }
  out[byte ^ Code::turned] = static_cast<std::byte>(together);
}

template <class Code>
struct pack_codes {
  Code code;
  const float* input;
  std::size_t n;
  std::byte* out;

  template <int>
  TUTTI_HD void pack(std::size_t byte) const {
    const Code its = code.here();
    pack_byte<Code>(byte, n, out, [this, &its](std::size_t i) { return its.of(input[i]); });
  }
};

/// Packs the codes of `into`, after adding `from` unless it is null, and subtracts what each is
/// worth.
template <class Code>
struct pack_codes_and_subtract {
  Code code;
  float* into;
  const float* from;
  std::size_t n;
  std::byte* out;

  template <int>
  TUTTI_HD void pack(std::size_t byte) const {
    const Code its = code.here();
    pack_byte<Code>(byte, n, out, [this, &its](std::size_t i) {
      float both = from == nullptr ? into[i] : into[i] + from[i];
      const std::uint32_t taken = kernels::detail::subtract_code(its, both);
      into[i] = both;
      return taken;
    });
  }
};

template <class Code>
struct add_codes {
  Code code;
  const std::byte* in;
  float* sum;
  std::size_t n;

  template <int>
  TUTTI_HD void pack(std::size_t byte) const {
    const Code its = code.here();
    const auto together = static_cast<std::uint32_t>(in[byte ^ Code::turned]);
    for (std::size_t each = 0; each < codes_in_byte<Code>; ++each) {
      const std::size_t i = byte * codes_in_byte<Code> + each;
      if (i < n) {
        sum[i] += its.worth(kernels::detail::code_in<Code>(together, each));
      }
    }
  }
};

}  // namespace element

}  // namespace tutti::kernels
