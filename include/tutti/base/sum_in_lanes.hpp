#pragma once

#include <array>
#include <cstddef>

namespace tutti {

/// Adds `f(0)` to `f(n - 1)` in double, on the host, in sixteen interleaved partial sums. The order
/// of additions is the same for vector registers of any width.
template <class F>
double sum_in_lanes(std::size_t n, const F& f) {
  constexpr std::size_t lanes = 16;
  std::array<double, lanes> partial{};
  const std::size_t whole = n / lanes * lanes;
  for (std::size_t i = 0; i < whole; i += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      partial[lane] += static_cast<double>(f(i + lane));
    }
  }
  for (std::size_t i = whole; i < n; ++i) {
    partial[i - whole] += static_cast<double>(f(i));
  }
  double total = 0;
  for (const double each : partial) {
    total += each;
  }
  return total;
}

}  // namespace tutti
