#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::test {

/// Returns, for each of n elements, the sum over ranks and steps of `gradient(rank, step,
/// element)`, less what was applied, `all.sums[step]`, and less what is still in the residuals,
/// `all.residuals[rank]`. A conserving compressor loses nothing.
template <class History, class Gradient>
std::vector<std::int64_t> lost(const History& all, std::size_t n, Gradient gradient) {
  std::vector<std::int64_t> left(n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t step = 0; step < all.sums.size(); ++step) {
      for (std::size_t rank = 0; rank < all.residuals.size(); ++rank) {
        left[i] += gradient(rank, step, i);
      }
      left[i] -= all.sums[step][i];
    }
    for (const auto& residual : all.residuals) {
      left[i] -= residual[i];
    }
  }
  return left;
}

}  // namespace tutti::test
