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
/// returns how many they are; 0 if less than 32 places would be left. Places behind them are
/// overwritten, too.
inline std::size_t collect(std::span<const float> input, std::uint32_t floor,
                           const candidates& room) {
  if (room.values.size() < detail::collect_block) {
    return 0;
  }
  std::size_t found = 0;
  std::size_t compared = 0;
  const std::size_t most = room.values.size() - detail::collect_block;
#if defined(__x86_64__) && defined(__GNUC__) && defined(__OPTIMIZE__) && !defined(__CUDACC__)
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
