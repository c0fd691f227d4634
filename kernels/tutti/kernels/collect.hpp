#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "tutti/kernels/elements.hpp"
#include "tutti/kernels/widest.hpp"

namespace tutti::kernels {

/// Room for candidates: elements that may be among the largest. Both spans have the same length.
struct candidates {
  std::span<float> values{};
  std::span<std::uint32_t> indices{};
};

namespace detail {

// How many elements are written at a time, before it is known which of them count.
inline constexpr std::size_t collect_block = 32;

/// Writes the elements that reach `floor`, in order, and returns how many they are; 0 if they may
/// not fit.
inline std::size_t collect_anywhere(std::span<const float> input, std::uint32_t floor,
                                    const candidates& room) {
  std::size_t found = 0;
  for (std::size_t begin = 0; begin < input.size(); begin += collect_block) {
    const std::size_t n = std::min(collect_block, input.size() - begin);
    std::uint32_t hits = 0;
    if (n == collect_block) {  // most blocks hold none, and end here
      for (std::size_t i = 0; i < collect_block; ++i) {
        hits += key_of(input[begin + i]) >= floor ? 1 : 0;
      }
      if (hits == 0) {
        continue;
      }
    }
    if (room.values.size() - found < collect_block) {
      return 0;
    }
    for (std::size_t i = begin; i < begin + n; ++i) {
      room.values[found] = input[i];
      room.indices[found] = static_cast<std::uint32_t>(i);
      found += key_of(input[i]) >= floor ? 1 : 0;
    }
  }
  return found;
}

#if defined(__x86_64__) && defined(__GNUC__) && defined(__OPTIMIZE__) && !defined(__CUDACC__)
/// Sixteen elements' bits, as vector instructions take them.
using sixteen [[gnu::vector_size(64)]] = std::int32_t;

/// Collects with the one instruction that no compiler generates: it moves the chosen ones of
/// sixteen elements together. It is called by the name that compilers have for it, because
/// <immintrin.h> takes half a second to read.
///
/// A first loop lists the vectors that hold candidates, among as many as stay in the first-level
/// cache. A branch at each vector would be mispredicted wherever one holds a candidate.
[[gnu::target("avx512f,avx512bw,avx512vl,popcnt")]] inline std::size_t collect_avx512(
    std::span<const float> input, std::uint32_t floor, const candidates& room) {
  constexpr std::size_t count = 16;
  constexpr std::size_t looked_at = 128 * count;
  constexpr int at_least = 5;  // the code of the comparison a >= b of unsigned numbers
  const sixteen magnitude = sixteen{} + 0x7fff'ffff;
  const sixteen least = sixteen{} + static_cast<std::int32_t>(floor);
  const sixteen first = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const std::size_t whole = input.size() / count * count;
  std::size_t found = 0;
  sixteen loaded{};
  for (std::size_t begin = 0; begin < whole; begin += looked_at) {
    std::array<std::uint32_t, looked_at / count> holding;
    std::size_t vectors = 0;
    const std::size_t end = std::min(whole, begin + looked_at);
    for (std::size_t i = begin; i < end; i += count) {
      std::memcpy(&loaded, input.data() + i, sizeof loaded);
      holding[vectors] = static_cast<std::uint32_t>(i);
      vectors +=
          __builtin_ia32_ucmpd512_mask(loaded & magnitude, least, at_least, 0xffff) != 0 ? 1 : 0;
    }
    for (std::size_t vector = 0; vector < vectors; ++vector) {
      if (room.values.size() - found < collect_block) {
        return 0;
      }
      std::memcpy(&loaded, input.data() + holding[vector], sizeof loaded);
      const auto hits = __builtin_ia32_ucmpd512_mask(loaded & magnitude, least, at_least, 0xffff);
      const sixteen index = first + static_cast<std::int32_t>(holding[vector]);
      const sixteen values = __builtin_ia32_compresssi512_mask(loaded, sixteen{}, hits);
      const sixteen indices = __builtin_ia32_compresssi512_mask(index, sixteen{}, hits);
      std::memcpy(room.values.data() + found, &values, sizeof values);
      std::memcpy(room.indices.data() + found, &indices, sizeof indices);
      found += static_cast<std::size_t>(std::popcount(static_cast<std::uint16_t>(hits)));
    }
  }
  for (std::size_t i = whole; i < input.size(); ++i) {
    if (key_of(input[i]) >= floor) {
      if (found == room.values.size()) {
        return 0;
      }
      room.values[found] = input[i];
      room.indices[found++] = static_cast<std::uint32_t>(i);
    }
  }
  return found;
}
#endif

}  // namespace detail

/// Writes the values and indices of all elements whose key is at least `floor`, in order, and
/// returns how many they are; 0 if they may not fit. Up to 32 places behind them are overwritten,
/// too.
inline std::size_t collect(std::span<const float> input, std::uint32_t floor,
                           const candidates& room) {
#if defined(__x86_64__) && defined(__GNUC__) && defined(__OPTIMIZE__) && !defined(__CUDACC__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    return detail::collect_avx512(input, floor, room);
  }
#endif
  std::size_t found = 0;
  widest([&] { found = detail::collect_anywhere(input, floor, room); });
  return found;
}

}  // namespace tutti::kernels
