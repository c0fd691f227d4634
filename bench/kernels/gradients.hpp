#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "tutti/base/line_vector.hpp"

namespace bench {

using floats = tutti::line_vector<float>;

/// Returns a gradient of N(0, 1e-3) values.
inline floats normal_gradient(std::size_t n, unsigned seed) {
  std::minstd_rand random(seed);
  std::normal_distribution<float> normal(0, 1e-3F);
  floats made(n);
  for (float& each : made) {
    each = normal(random);
  }
  return made;
}

/// Returns a gradient like those that selection meets in training: layers of 100,000 elements whose
/// magnitudes differ by two orders, with a few elements in each that are far larger than the rest.
inline floats layered_gradient(std::size_t n, unsigned seed) {
  constexpr std::size_t layer = 100'000;
  floats made = normal_gradient(n, seed);
  std::minstd_rand random(seed);
  std::lognormal_distribution<float> magnitude(0, 1);
  float of_layer = 1;
  for (std::size_t i = 0; i < n; ++i) {
    if (i % layer == 0) {
      of_layer = magnitude(random);
    }
    made[i] *= of_layer * (1 + 250'000 * made[i] * made[i]);
  }
  return made;
}

/// Returns the ends of 161 tensors, as many as ResNet-50 has, of very different lengths.
inline std::vector<std::size_t> tensor_ends(std::size_t n) {
  constexpr std::size_t tensors = 161;
  std::vector<std::size_t> ends;
  for (std::size_t i = 1; i <= tensors; ++i) {
    ends.push_back(n * i * i * i / (tensors * tensors * tensors));
  }
  return ends;
}

}  // namespace bench
