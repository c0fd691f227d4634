#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "tutti/base/plan.hpp"
#include "tutti/role/compression.hpp"

// How many bytes workers push of a chunk, in each round of its compressor.
namespace tutti::architecture {

template <class C>
int rounds_of(const C& compression, const chunk& piece) {
  return with_compressor(compression, piece.chosen, [](const auto& its) {
    return facts::rounds<std::remove_cvref_t<decltype(its)>>;
  });
}

/// Returns the most bytes that a worker pushes in a round.
template <class World>
std::size_t push_capacity(const World& world, const chunk& piece, int round) {
  return with_compressor(world.compressor(), piece.chosen, [&](const auto& its) {
    if constexpr (facts::in_rounds<std::remove_cvref_t<decltype(its)>>) {
      return its.wire_bytes(world.tensor_of(piece), round);
    } else {
      return capacity(its, piece.elements);
    }
  });
}

template <class World>
std::size_t longest_push(const World& world, const chunk& piece) {
  std::size_t longest = 0;
  for (int round = 0; round < rounds_of(world.compressor(), piece); ++round) {
    longest = std::max(longest, push_capacity(world, piece, round));
  }
  return longest;
}

}  // namespace tutti::architecture
