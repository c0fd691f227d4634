#pragma once

#include <cstddef>

#include "tutti/kernels/low_rank.hpp"

namespace bench {

/// Returns the dimensions of a gradient of n elements as a matrix that is about square, with thin
/// matrices of two columns.
inline tutti::kernels::low_rank matrix_of(std::size_t n) {
  std::size_t columns = 1;
  while (4 * columns * columns <= n && n % (2 * columns) == 0) {
    columns *= 2;
  }
  return {n / columns, columns, 2};
}

}  // namespace bench
