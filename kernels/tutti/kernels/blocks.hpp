#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/base/host_device.hpp"

namespace tutti::kernels {

/// Returns how many blocks n elements make; only the last may be shorter.
TUTTI_HD constexpr std::size_t block_count(std::size_t n, std::size_t block) {
  return n / block + (n % block != 0 ? 1 : 0);
}

namespace detail {

/// Calls `f(number of the block, first element, how many elements)` for every block of n elements,
/// in order.
template <class F>
void for_each_block(std::size_t n, std::size_t block, const F& f) {
  for (std::size_t number = 0, begin = 0; begin < n; ++number, begin += block) {
    f(number, begin, std::min(block, n - begin));
  }
}

/// Prefetches an element that will be used soon. It is always inlined, because g++ leaves out calls
/// of functions that only prefetch.
[[gnu::always_inline]] inline void ask_for(const float* element) {
  __builtin_prefetch(element, 0, 2);
}

/// Prefetches element i, or the last one if i lies beyond the end. The array must not be empty.
[[gnu::always_inline]] inline void ask_for(std::span<const float> array, std::size_t i) {
  ask_for(array.data() + std::min(i, array.size() - 1));
}

/// Prefetches n elements of each array, a line at a time, that will be used some time after those
/// from `begin` on.
template <class... Arrays>
[[gnu::always_inline]] inline void prefetch_after(std::size_t begin, std::size_t n,
                                                  const Arrays... arrays) {
  constexpr std::size_t distance = 1024;
  constexpr std::size_t line = 16;
  for (std::size_t i = begin + distance; i < begin + distance + n; i += line) {
    (ask_for(arrays, i), ...);
  }
}

/// Calls `f(i)` for n numbers from `begin` on, and prefetches elements of `arrays` that follow
/// later. No call of `f` may write what another one reads.
///
/// It is for loops that compute as long as memory takes: while a processor is busy with these
/// elements, it does not look far enough ahead to keep memory busy, too. Compilers do not vectorise
/// a loop that prefetches, so it consists of short ones that do not.
template <class F, class... Arrays>
void for_each_prefetching(std::size_t begin, std::size_t n, const F f, const Arrays... arrays) {
  constexpr std::size_t piece = 64;
  const std::size_t end = begin + n;
  for (; begin + piece <= end; begin += piece) {
    prefetch_after(begin, piece, arrays...);
#if !defined(__clang__)
#pragma GCC ivdep
#endif
    for (std::size_t i = 0; i < piece; ++i) {
      f(begin + i);
    }
  }
  for (; begin < end; ++begin) {
    f(begin);
  }
}

}  // namespace detail

/// How many threads of a device share a block: as many as sum_in_lanes has partial sums, so that
/// each thread adds up one of these, in the host's order.
inline constexpr std::size_t block_lanes = 16;

/// Stands in for these threads on a host, one after another.
struct host_lanes {
  /// What each lane keeps from one call to the next.
  template <class T>
  using of_lanes = std::array<T, block_lanes>;

  /// Calls `f(lane)` for every lane.
  template <class F>
  void each(const F& f) const {
    for (std::size_t lane = 0; lane < block_lanes; ++lane) {
      f(lane);
    }
  }
  /// Returns the largest `f(lane)`.
  template <class F>
  std::uint32_t largest(const F& f) const {
    std::uint32_t found = 0;
    each([&](std::size_t lane) { found = std::max(found, f(lane)); });
    return found;
  }
  /// Returns f(0) + f(1) + …, added in that order.
  template <class F>
  double add_up(const F& f) const {
    double total = 0;
    each([&](std::size_t lane) { total += f(lane); });
    return total;
  }
};

/// Returns a / b, computed in 32 bits if both fit, because devices divide those several times as
/// fast.
TUTTI_HD constexpr std::size_t divided(std::size_t a, std::size_t b) {
  return (a | b) >> 32 == 0 ? static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b) : a / b;
}

/// The first element and the length of one block of an array.
struct block_of {
  std::size_t begin;
  std::size_t n;

  TUTTI_HD block_of(std::size_t number, std::size_t block, std::size_t elements)
      : begin(number * block), n(elements - begin < block ? elements - begin : block) {}
};

}  // namespace tutti::kernels
