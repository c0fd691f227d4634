#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "tutti/kernels/blocks.hpp"
#include "tutti/kernels/elements.hpp"
#include "tutti/kernels/widest.hpp"

namespace tutti::kernels {

/// Room for candidates: elements that may be among the largest. Both spans have the same length.
struct candidates {
  std::span<float> values{};
  std::span<std::uint32_t> indices{};
};

namespace detail {

// How many elements are compared before it is known which of them count.
inline constexpr std::size_t collect_block = 32;

/// Calls `take(i)` for each element from `begin` on whose key is at least `floor`, in order.
template <class Take>
void reaching_one_by_one(std::span<const float> input, std::size_t begin, std::uint32_t floor,
                         const Take& take) {
  for (std::size_t i = begin; i < input.size(); ++i) {
    if (key_of(input[i]) >= floor) {
      take(i);
    }
  }
}

#if defined(__x86_64__) && defined(__GNUC__) && defined(__OPTIMIZE__) && !defined(__CUDACC__)
/// Eight elements' bits, as vector instructions take them, and as comparisons return them.
using eight [[gnu::vector_size(32)]] = std::int32_t;
using eight_floats [[gnu::vector_size(32)]] = float;

/// Returns a bit for each of 32 elements, the first one's lowest: 1 where the key is above `below`.
[[gnu::target("avx2"), gnu::always_inline]] inline std::uint32_t bits_above(const float* input,
                                                                            eight below) {
  constexpr std::size_t count = 8;
  const eight magnitude = eight{} + 0x7fff'ffff;
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < collect_block; i += count) {
    eight loaded;
    std::memcpy(&loaded, input + i, sizeof loaded);
    const auto hits = reinterpret_cast<eight_floats>((loaded & magnitude) > below);
    bits |= static_cast<std::uint32_t>(__builtin_ia32_movmskps256(hits)) << i;
  }
  return bits;
}

/// Calls `take(begin, bits)` for each block of 32 elements of which some have a key of at least
/// `floor`, in order. These have a bit of 1, the first element's lowest. Returns how many elements
/// were compared; fewer than 128 are left.
///
/// Four places of the input are read at the same time, because one stream leaves memory idle. They
/// are so near to each other that the blocks are still in the second-level cache when they are
/// taken. Meanwhile the next places are prefetched.
template <class Take>
[[gnu::target("avx2,bmi,popcnt"), gnu::flatten]] std::size_t reaching_avx2(
    std::span<const float> input, std::uint32_t floor, const Take& take) {
  struct block_of_hits {
    std::uint32_t begin;
    std::uint32_t bits;
  };
  constexpr std::size_t places = 4;
  constexpr std::size_t most = 16384;  // elements that are read at a place before any is taken
  constexpr std::size_t line = 16;
  std::array<std::array<block_of_hits, most / collect_block>, places> holding;
  const eight below = eight{} + (static_cast<std::int32_t>(floor) - 1);
  std::size_t begin = 0;
  while (input.size() - begin >= places * collect_block) {
    const std::size_t blocks_at_a_place = (input.size() - begin) / (places * collect_block);
    const std::size_t at_a_place = std::min(most, blocks_at_a_place * collect_block);
    std::array<std::size_t, places> blocks{};
    for (std::size_t i = 0; i < at_a_place; i += collect_block) {
      for (std::size_t place = 0; place < places; ++place) {
        const std::size_t first = begin + place * at_a_place + i;
        const std::uint32_t bits = bits_above(input.data() + first, below);
        holding[place][blocks[place]] = {static_cast<std::uint32_t>(first), bits};
        blocks[place] += bits != 0 ? 1 : 0;
      }
    }
    for (std::size_t place = 0; place < places; ++place) {
      std::size_t next = begin + (places + place) * at_a_place;
      for (const auto& block : std::span(holding[place]).first(blocks[place])) {
        ask_for(input, next);
        next += line;
        take(block.begin, block.bits);
      }
    }
    begin += places * at_a_place;
  }
  return begin;
}

/// Writes the elements of a block whose bit is 1 to `room`, behind the `found` that are there, and
/// their indices. Four are always written, and overwritten unless they count: a branch at each
/// would often be mispredicted.
struct write_candidates {
  std::span<const float> input;
  const candidates& room;
  std::size_t& found;

  [[gnu::target("avx2,bmi,popcnt"), gnu::always_inline]] void operator()(std::size_t begin,
                                                                         std::uint32_t bits) const {
    constexpr std::size_t together = 4;
    std::size_t at = std::min(found, room.values.size() - collect_block);
    found += static_cast<std::size_t>(std::popcount(bits));
    do {
      for (std::size_t each = 0; each < together; ++each) {
        const std::size_t i = begin + (static_cast<std::size_t>(std::countr_zero(bits)) & 31);
        room.values[at + each] = input[i];
        room.indices[at + each] = static_cast<std::uint32_t>(i);
        bits &= bits - 1;
      }
      at += together;
    } while (bits != 0);
  }
};

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

/// Calls `take(i)` for each element whose key is at least `floor`, in order. `take` may change that
/// element.
template <class Take>
void for_each_reaching(std::span<const float> input, std::uint32_t floor, const Take& take) {
  std::size_t compared = 0;
#if defined(__x86_64__) && defined(__GNUC__) && defined(__OPTIMIZE__) && !defined(__CUDACC__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi")) {
    compared = detail::reaching_avx2(input, floor, [&](std::size_t begin, std::uint32_t bits) {
      for (; bits != 0; bits &= bits - 1) {
        take(begin + static_cast<std::size_t>(std::countr_zero(bits)));
      }
    });
  }
#endif
  detail::reaching_one_by_one(input, compared, floor, take);
}

/// Writes the values and indices of all elements whose key is at least `floor`, in order, and
/// returns how many they are; 0 if they do not fit, and on some processors also if less than 32
/// places would be left. Places behind them are overwritten, too.
inline std::size_t collect(std::span<const float> input, std::uint32_t floor,
                           const candidates& room) {
  if (room.values.size() < detail::collect_block) {
    return 0;
  }
  std::size_t found = 0;
  std::size_t compared = 0;
  const std::size_t most = room.values.size() - detail::collect_block;
#if defined(__x86_64__) && defined(__GNUC__) && defined(__OPTIMIZE__) && !defined(__CUDACC__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    return detail::collect_avx512(input, floor, room);
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi")) {
    compared = detail::reaching_avx2(input, floor, detail::write_candidates{input, room, found});
  }
#endif
  detail::reaching_one_by_one(input, compared, floor, [&](std::size_t i) {
    const std::size_t at = std::min(found++, most);
    room.values[at] = input[i];
    room.indices[at] = static_cast<std::uint32_t>(i);
  });
  return found <= most ? found : 0;
}

}  // namespace tutti::kernels
