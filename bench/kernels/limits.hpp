#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "tutti/kernels/widest.hpp"

namespace bench {

/// What no kernel that reads an array can beat: its words, added up as integers, which no rounding
/// forces into an order, from four places at once, for one stream leaves memory idle.
inline std::uint32_t read_all(std::span<const float> input) {
  std::uint32_t total = 0;
  tutti::kernels::widest([&total, input] {
    const std::size_t quarter = input.size() / 4;
    const auto word = [input](std::size_t i) { return std::bit_cast<std::uint32_t>(input[i]); };
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < quarter; ++i) {
      sum += word(i) + word(quarter + i) + word(2 * quarter + i) + word(3 * quarter + i);
    }
    for (std::size_t i = 4 * quarter; i < input.size(); ++i) {
      sum += word(i);
    }
    total = sum;
  });
  return total;
}

/// What no kernel that makes one array of another can beat by much: the C library's copy, of which
/// 8 bytes an element are read or written.
inline void copy_whole(float* to, const float* from, std::size_t n) {
  std::memcpy(to, from, n * sizeof(float));
}

/// What no kernel that reads and writes can beat by much: a[i] += b[i], of which 12 bytes an
/// element are read or written.
inline void add_all(float* __restrict a, const float* __restrict b, std::size_t n) {
  tutti::kernels::widest([=] {
    for (std::size_t i = 0; i < n; ++i) {
      a[i] += b[i];
    }
  });
}

}  // namespace bench
