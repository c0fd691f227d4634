#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <random>
#include <vector>

namespace tutti {

inline constexpr std::size_t sizes[] = {0,   1,   3,   4,    5,    31,   32,   33,
                                        255, 256, 257, 1023, 1025, 4097, 20001};

inline std::vector<float> normal_values(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> made(n);
  std::ranges::generate(made, [&] { return normal(random); });
  return made;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

}  // namespace tutti
