#pragma once

#include <cstddef>

namespace tutti::test {

/// Elements of a run of `n`, from a model's element `first` on, that are dealt to one of `ranks`
/// when the model's elements go to the ranks in turn.
constexpr std::size_t dealt(std::size_t first, std::size_t n, std::size_t rank, std::size_t ranks) {
  std::size_t count = n / ranks;  // of whole turns
  for (std::size_t i = first; i < first + n % ranks; ++i) {
    count += i % ranks == rank % ranks ? 1 : 0;
  }
  return count;
}

}  // namespace tutti::test
