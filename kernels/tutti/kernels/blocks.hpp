#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

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
