#pragma once

#include <algorithm>
#include <random>
#include <span>
#include <vector>

namespace compare {

/// A gradient as a compressor may meet it, the same on every rank: a prime number of normally
/// distributed values again and again, for a sample of every so many would else meet the same few.
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
