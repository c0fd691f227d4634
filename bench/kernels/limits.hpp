#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "tutti/kernels/widest.hpp"

namespace bench {

/// A limit for kernels that read an array: adds up its words as integers, whose sum does not depend
/// on the order, from four places at the same time, because one stream leaves memory idle.
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

/// A limit, nearly, for kernels that turn one array into another: the C library's copy, which moves
/// 8 bytes an element.
inline void copy_whole(float* to, const float* from, std::size_t n) {
  std::memcpy(to, from, n * sizeof(float));
}

/// A limit, nearly, for kernels that read and write an array: a[i] += b[i], which moves 12 bytes an
/// element.
inline void add_all(float* __restrict a, const float* __restrict b, std::size_t n) {
  tutti::kernels::widest([=] {
    for (std::size_t i = 0; i < n; ++i) {
      a[i] += b[i];
    }
  });
}

}  // namespace bench
