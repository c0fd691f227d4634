#pragma once

#include <algorithm>
#include <cstddef>

namespace tutti::kernels {

/// Blocks that n elements make; only the last may be shorter.
constexpr std::size_t block_count(std::size_t n, std::size_t block) {
  return n / block + (n % block != 0 ? 1 : 0);
}

namespace detail {

/// Calls `f(block's number, first element, elements)` for every block of n elements, in order.
template <class F>
void for_each_block(std::size_t n, std::size_t block, const F& f) {
  for (std::size_t begin = 0; begin < n; begin += block) {
    f(begin / block, begin, std::min(block, n - begin));
  }
}

}  // namespace detail

}  // namespace tutti::kernels
