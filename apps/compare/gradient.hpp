#pragma once

#include <algorithm>
#include <random>
#include <span>
#include <vector>

namespace compare {

/// Fills gradients with typical values for timing a compressor, the same on every rank: 65,521
/// normally distributed values, repeated. The number is a prime, so that a compressor that samples
/// at regular strides does not draw the same few values again and again.
inline void fill(std::span<float> gradients) {
  static const std::vector<float> some = [] {
    std::vector<float> drawn(65'521);
    std::mt19937 random;
    std::normal_distribution<float> normal;
    std::ranges::generate(drawn, [&] { return normal(random); });
    return drawn;
  }();
  for (; !gradients.empty();
       gradients = gradients.subspan(std::min(some.size(), gradients.size()))) {
    std::copy_n(some.begin(), std::min(some.size(), gradients.size()), gradients.begin());
  }
}

}  // namespace compare
