#pragma once

#include <cstddef>

namespace tutti::test {

/// Returns how many of `n` elements, from a model's element `first` on, one of `ranks` gets when
/// the model's elements are dealt to the ranks in turn.
constexpr std::size_t dealt(std::size_t first, std::size_t n, std::size_t rank, std::size_t ranks) {
  std::size_t count = n / ranks;  // elements of whole turns
  for (std::size_t i = first; i < first + n % ranks; ++i) {
    count += i % ranks == rank % ranks ? 1 : 0;
  }
  return count;
}

}  // namespace tutti::test
