#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>

#include "tutti/base/queue.hpp"
#include "tutti/base/units.hpp"
#include "tutti/kernels/counted_random.hpp"
#include "tutti/kernels/elias.hpp"
#include "tutti/kernels/norms.hpp"
#include "tutti/kernels/widest.hpp"

// BytePS's dithering: a chunk's elements become levels of its largest magnitude or Euclidean norm,
// rounded up or down at random, in Elias' delta code. It runs only on hosts, because the place of
// an element's bits depends on all elements before it.
namespace tutti::kernels {

/// Where the levels between 0 and the norm lie.
enum class level_spacing {
  linear,   ///< 1/s, 2/s, … 1
  natural,  ///< 2^(1-s), 2^(2-s), … 1
};

/// The norm of a chunk, of which levels are shares.
enum class chunk_norm { largest, euclidean };

/// The parameters of the code, on which encoder and decoder agree.
struct dithering_code {
  std::uint32_t count{};  ///< how many levels there are, BytePS's s
  level_spacing spacing{};
  chunk_norm norm{};

  /// Returns the number of the highest level, the norm itself.
  constexpr std::uint32_t top() const {
    return spacing == level_spacing::linear ? count : std::uint32_t{1} << (count - 1);
  }
  /// Returns the most bits that n elements can take. An element takes most if it directly follows
  /// the coded element before it, because the code of a distance is shorter than three times the
  /// distance.
  constexpr std::size_t most_bits(std::size_t n) const {
    return n * static_cast<std::size_t>(2 + elias_delta(top()).length);
  }
};

/// What precedes the coded elements: the number of their bits, and the norm.
struct dithering_header {
  std::uint32_t bits{};
  float norm{};
};

constexpr std::size_t dithering_bytes(std::size_t bits) {
  return sizeof(dithering_header) + round_up(bits, 32) / 8;
}

namespace detail {

/// Returns the chunk's norm, rounded as BytePS does: squares are rounded to floats, and their sum,
/// in order, is in double. If this sum is infinite or 0, the squares are added unrounded. The
/// largest magnitude is NaN if any element is, because the bits of NaN are above those of every
/// other magnitude.
inline double dithering_norm(std::span<const float> input, chunk_norm which) {
  if (which == chunk_norm::largest) {
    return std::bit_cast<float>(largest_key(input));
  }
  double sum = 0;
  for (const float each : input) {
    const float product = each * each;
    sum += double{product};
  }
  if (!(sum > 0 && std::isfinite(sum))) {
    sum = 0;
    for (const float each : input) {
      sum += double{each} * double{each};
    }
  }
  return std::sqrt(sum);
}

/// The level below an element, the distance from there to the level above, and the element's place
/// between the two, from 0 to 1.
struct level_below {
  double level;
  double step;
  double place;
};

template <level_spacing Spacing>
level_below find_level(float magnitude, double norm, double top) {
  const double share = double{magnitude} / norm * top;
  if constexpr (Spacing == level_spacing::linear) {
    const auto rounded = static_cast<float>(share);
    const auto below = static_cast<float>(static_cast<std::int32_t>(rounded));
    return {below, 1, double{rounded - below}};
  } else {
    constexpr std::uint64_t exponent = 0x7ff0'0000'0000'0000u;
    const double power = std::bit_cast<double>(std::bit_cast<std::uint64_t>(share) & exponent);
    const double below = share < 1 ? 0 : power;
    const double step = share < 1 ? 1 : power;
    return {below, step, (share - below) / step};
  }
}

/// How many elements' levels are drawn before they are coded; they stay in the first-level cache.
inline constexpr std::size_t levels_together = 1024;

template <level_spacing Spacing>
void draw_levels(std::span<const float> input, double norm, double top, const counted_random random,
                 std::uint32_t* levels) {
  for (std::size_t i = 0; i < input.size(); ++i) {
    const level_below its = find_level<Spacing>(std::fabs(input[i]), norm, top);
    const double drawn = std::bit_cast<double>(random.bits(i) >> 12 | 0x3ff0'0000'0000'0000u) - 1;
    const double level = its.level + (drawn < its.place ? its.step : 0);
    levels[i] = static_cast<std::uint32_t>(static_cast<std::int32_t>(level < top ? level : top));
  }
}

/// The codes of small numbers, which most numbers are.
inline constexpr auto small_deltas = [] {
  std::array<bit_string, 128> codes{};
  for (std::size_t number = 1; number < codes.size(); ++number) {
    codes[number] = elias_delta(number);
  }
  return codes;
}();

inline bit_string delta_of(std::uint64_t number) {
  return number < small_deltas.size() ? small_deltas[number] : elias_delta(number);
}

inline std::size_t encode_dithered(std::span<const float> input, const dithering_code& code,
                                   const counted_random& random, std::byte* out) {
  const double norm = dithering_norm(input, code.norm);
  dithering_header header{0, static_cast<float>(norm)};
  word_writer to(out + sizeof header);
  if (norm > 0 && std::isfinite(header.norm)) {
    std::uint32_t levels[levels_together];
    std::size_t coded = 0;  // one past the last element whose level is not 0
    for (std::size_t begin = 0; begin < input.size(); begin += levels_together) {
      const auto some = input.subspan(begin, std::min(levels_together, input.size() - begin));
      widest([&, drawn = random.from(begin), top = static_cast<double>(code.top())] {
        code.spacing == level_spacing::linear
            ? draw_levels<level_spacing::linear>(some, norm, top, drawn, levels)
            : draw_levels<level_spacing::natural>(some, norm, top, drawn, levels);
      });
      for (std::size_t i = 0; i < some.size(); ++i) {
        if (levels[i] == 0) {
          continue;
        }
        const bit_string distance = delta_of(begin + i + 1 - coded);
        const bit_string sign{std::signbit(some[i]) ? 1u : 0u, 1};
        const bit_string level = sign.then(delta_of(levels[i]));
        if (distance.length + level.length <= 32) {
          to.write(distance.then(level));
        } else {
          to.write_long(distance);
          to.write_long(level);
        }
        coded = begin + i + 1;
      }
    }
  }
  header.bits = static_cast<std::uint32_t>(to.finish());
  std::memcpy(out, &header, sizeof header);
  return dithering_bytes(header.bits);
}

/// Returns level * norm / top: in floats, as BytePS computes it, or in double where the product is
/// no finite float.
inline float dithered_value(std::uint64_t level, float norm, float top) {
  const float product = static_cast<float>(level) * norm;
  return std::isfinite(product)
             ? product / top
             : static_cast<float>(static_cast<double>(level) * double{norm} / double{top});
}

inline void add_dithered(std::span<const std::byte> payload, const dithering_code& code,
                         std::span<float> sum) {
  dithering_header header;
  if (payload.size() < sizeof header) {
    return;
  }
  std::memcpy(&header, payload.data(), sizeof header);
  if (!std::isfinite(header.norm)) {
    for (float& each : sum) {
      each += std::numeric_limits<float>::quiet_NaN();
    }
    return;
  }
  word_reader from(payload.subspan(sizeof header));
  const auto top = static_cast<float>(code.top());
  for (std::size_t i = 0; from.bits() < header.bits; ++i) {
    const std::uint64_t distance = from.read_elias_delta();
    if (distance == 0 || distance > sum.size() - i) {
      return;
    }
    i += distance - 1;
    const bool negative = from.read(1) != 0;
    const float value = dithered_value(from.read_elias_delta(), header.norm, top);
    sum[i] += negative ? -value : value;
  }
}

}  // namespace detail

/// Encodes `input`, and sets *length to the bytes that this takes. Element i draws the random
/// number of place i.
template <host_queue Queue>
void encode_dithered(Queue& queue, std::span<const float> input, const dithering_code& code,
                     const counted_random& random, std::byte* out, std::size_t* length) {
  queue.run([=] { *length = detail::encode_dithered(input, code, random, out); });
}

/// sum[i] += what its level stands for. The payload may be longer than its code. A payload that is
/// not valid code adds arbitrary numbers, but nothing outside of `payload` and `sum` is touched.
template <host_queue Queue>
void add_dithered(Queue& queue, std::span<const std::byte> payload, const dithering_code& code,
                  std::span<float> sum) {
  queue.run([=] { detail::add_dithered(payload, code, sum); });
}

}  // namespace tutti::kernels
