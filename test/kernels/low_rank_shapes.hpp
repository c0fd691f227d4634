#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tutti/kernels/low_rank.hpp"

namespace tutti {

/// Wide and narrow matrices, some smaller than a block of threads and some with so few sums that
/// these are cut. They have more rows, columns and thin columns than a thread takes together,
/// fewer, and exactly as many.
inline constexpr kernels::low_rank low_rank_shapes[] = {
    {1, 1, 1},    {2, 5, 2},    {33, 9, 4},    {16, 31, 5},  {64, 577, 2}, {7, 301, 9},
    {3, 5000, 3}, {5001, 3, 3}, {2065, 40, 1}, {6, 400, 4},  {9, 192, 3},  {4, 379, 1},
    {18, 193, 2}, {47, 33, 4},  {48, 32, 5},   {1025, 65, 3}};

inline std::string named(const kernels::low_rank& size) {
  return std::to_string(size.rows) + " x " + std::to_string(size.columns) + ", rank " +
         std::to_string(size.rank);
}

/// In every run of n values, the later half is the mirrored first half times `sign`. Sums of such
/// terms cancel except for rounding, which differs with the order of addition.
inline std::vector<float> mirrored(std::vector<float> values, std::size_t n, float sign) {
  for (std::size_t begin = 0; begin < values.size(); begin += n) {
    for (std::size_t i = 0; i < (n + 1) / 2; ++i) {
      float& later = values[begin + n - 1 - i];
      later = 2 * i + 1 == n ? 0.0f : sign * values[begin + i];
    }
  }
  return values;
}

/// Returns a matrix whose rows are opposite in pairs, so that sums over a column cancel.
inline std::vector<float> with_opposite_rows(std::vector<float> matrix,
                                             const kernels::low_rank& size) {
  for (std::size_t i = 0; i < (size.rows + 1) / 2; ++i) {
    for (std::size_t j = 0; j < size.columns; ++j) {
      float& later = matrix[(size.rows - 1 - i) * size.columns + j];
      later = 2 * i + 1 == size.rows ? 0.0f : -matrix[i * size.columns + j];
    }
  }
  return matrix;
}

}  // namespace tutti
