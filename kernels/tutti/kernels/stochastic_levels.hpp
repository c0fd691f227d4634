#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "tutti/base/queue.hpp"
#include "tutti/base/sum_in_lanes.hpp"
#include "tutti/kernels/blocks.hpp"
#include "tutti/kernels/counted_random.hpp"
#include "tutti/kernels/elias.hpp"

// A block's elements become levels of its Euclidean norm, rounded up or down at random, in Elias'
// code, as QSGD has it. It runs only on hosts, because the place of a block's bits depends on all
// blocks before it.
namespace tutti::kernels {

/// The parameters of the code, on which encoder and decoder agree.
struct level_code {
  std::uint32_t levels{};  ///< how many levels make up a block's norm
  std::size_t block{};     ///< how many elements share a norm
  bool every_element{};    ///< code every element; else only levels that are not 0, with distances

  /// Returns the most bits that a block of n elements can take. Where distances are coded, an
  /// element takes most if it directly follows the coded element before it, because the code of a
  /// distance is shorter than twice the distance.
  constexpr std::size_t most_bits(std::size_t n) const {
    const auto longest = static_cast<std::size_t>(
        elias_length(every_element ? std::uint64_t{levels} + 1 : std::uint64_t{levels}));
    return n == 0 ? 0 : 32 + (every_element ? n * (longest + 1) : n * (longest + 2) + 1);
  }
};

namespace detail {

/// Returns the norm as it is sent: the least float that is not below the exact norm, so that no
/// element is above it.
inline float block_norm(std::span<const float> block) {
  const double norm = std::sqrt(sum_in_lanes(
      block.size(), [block](std::size_t i) { return double{block[i]} * double{block[i]}; }));
  const auto rounded = static_cast<float>(norm);
  return static_cast<double>(rounded) < norm
             ? std::nextafter(rounded, std::numeric_limits<float>::infinity())
             : rounded;
}

/// Whether elements are coded: if the norm is 0, infinite or NaN, only the norm is sent.
inline bool has_levels(float norm) { return norm > 0 && std::isfinite(norm); }

inline std::size_t encode_levels(std::span<const float> input, const level_code& code,
                                 const counted_random& random, std::byte* out) {
  bit_writer to(out);
  for_each_block(input.size(), code.block, [&](std::size_t, std::size_t begin, std::size_t n) {
    const float norm = block_norm(input.subspan(begin, n));
    to.write(std::bit_cast<std::uint32_t>(norm), 32);
    if (!has_levels(norm)) {
      return;
    }
    std::size_t coded = 0;  // one past the last element whose level is not 0
    for (std::size_t i = 0; i < n; ++i) {
      const float value = input[begin + i];
      const double exact = std::fabs(double{value}) * code.levels / double{norm};
      const auto below = static_cast<std::int64_t>(exact);
      const bool up = random.uniform(begin + i) < exact - static_cast<double>(below);
      const auto level =
          std::min<std::uint64_t>(code.levels, static_cast<std::uint64_t>(below) + (up ? 1 : 0));
      if (code.every_element) {
        write_elias(to, level + 1);
      } else if (level != 0) {
        write_elias(to, i + 1 - coded);
        coded = i + 1;
      }
      if (level != 0) {
        to.write(std::signbit(value) ? 1 : 0, 1);
        if (!code.every_element) {
          write_elias(to, level);
        }
      }
    }
    if (!code.every_element) {
      write_elias(to, n + 1 - coded);
    }
  });
  return to.finish();
}

inline void add_levels(std::span<const std::byte> payload, const level_code& code,
                       std::span<float> sum) {
  bit_reader from(payload);
  for_each_block(sum.size(), code.block, [&](std::size_t, std::size_t begin, std::size_t n) {
    const auto norm = std::bit_cast<float>(static_cast<std::uint32_t>(from.read(32)));
    if (!has_levels(norm)) {
      for (float& each : sum.subspan(begin, n)) {
        each += norm == 0 ? 0.0f : std::numeric_limits<float>::quiet_NaN();
      }
      return;
    }
    const auto add = [&](std::size_t i, std::uint64_t level, bool negative) {
      const auto value = static_cast<float>(double{norm} * static_cast<double>(level) /
                                            static_cast<double>(code.levels));
      sum[begin + i] += negative ? -value : value;
    };
    for (std::size_t i = 0; i < n; ++i) {
      if (code.every_element) {
        const std::uint64_t level_and_1 = read_elias(from);
        if (level_and_1 > 1) {
          add(i, level_and_1 - 1, from.read(1) != 0);
        }
        continue;
      }
      const std::uint64_t distance = read_elias(from);
      if (distance == 0 || distance > n - i) {
        return;  // past the last element: how the encoder ends a block
      }
      i += distance - 1;
      const bool negative = from.read(1) != 0;
      add(i, read_elias(from), negative);
    }
    if (!code.every_element) {
      read_elias(from);
    }
  });
}

}  // namespace detail

/// Encodes `input`, and sets *length to the bytes that this takes. Element i draws the random
/// number of place i.
template <host_queue Queue>
void encode_levels(Queue& queue, std::span<const float> input, const level_code& code,
                   const counted_random& random, std::byte* out, std::size_t* length) {
  queue.run([=] { *length = detail::encode_levels(input, code, random, out); });
}

/// sum[i] += what its level stands for. The payload may be longer than its code. A payload that is
/// not valid code adds arbitrary numbers, but nothing outside of `payload` and `sum` is touched.
template <host_queue Queue>
void add_levels(Queue& queue, std::span<const std::byte> payload, const level_code& code,
                std::span<float> sum) {
  queue.run([=] { detail::add_levels(payload, code, sum); });
}

}  // namespace tutti::kernels
