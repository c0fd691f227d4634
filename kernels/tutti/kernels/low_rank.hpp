#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/base/queue.hpp"
#include "tutti/base/sum_in_lanes.hpp"
#include "tutti/kernels/counted_random.hpp"
#include "tutti/kernels/widest.hpp"

// A matrix as a product of two thin ones. Matrices lie row after row, thin ones column after
// column. Products of floats are exact in double and are added in one order, so every processor
// gives the same bits, whatever its vectors.
namespace tutti::kernels {

/// The rows and columns of a matrix, and the columns of its two thin factors.
struct low_rank {
  std::size_t rows{};
  std::size_t columns{};
  std::size_t rank{};
};

namespace detail {

inline double dot(const float* a, const float* b, std::size_t n) {
  return sum_in_lanes(n, [a, b](std::size_t i) { return double{a[i]} * double{b[i]}; });
}

inline void matrix_times_thin(const float* matrix, const float* right, const low_rank& size,
                              float* left) {
  for (std::size_t row = 0; row < size.rows; ++row) {
    for (std::size_t k = 0; k < size.rank; ++k) {
      left[k * size.rows + row] = static_cast<float>(
          dot(matrix + row * size.columns, right + k * size.columns, size.columns));
    }
  }
}

/// Columns at a time whose sums stay in the first-level cache.
constexpr std::size_t strip = 128;
using strip_sums = std::array<double, strip>;

inline void transposed_times_thin(const float* matrix, const float* left, const low_rank& size,
                                  float* right) {
  for (std::size_t begin = 0; begin < size.columns; begin += strip) {
    const std::size_t n = std::min(strip, size.columns - begin);
    for (std::size_t k = 0; k < size.rank; ++k) {
      strip_sums sums{};
      for (std::size_t row = 0; row < size.rows; ++row) {
        const float* const from = matrix + row * size.columns + begin;
        const double factor = left[k * size.rows + row];
        for (std::size_t i = 0; i < n; ++i) {
          sums[i] += factor * double{from[i]};
        }
      }
      for (std::size_t i = 0; i < n; ++i) {
        right[k * size.columns + begin + i] = static_cast<float>(sums[i]);
      }
    }
  }
}

/// Calls `f(first element, sums, how many)` for the product of the factors, strip by strip.
template <class F>
void each_strip_of_product(const float* left, const float* right, const low_rank& size,
                           const F& f) {
  for (std::size_t row = 0; row < size.rows; ++row) {
    for (std::size_t begin = 0; begin < size.columns; begin += strip) {
      const std::size_t n = std::min(strip, size.columns - begin);
      strip_sums sums{};
      for (std::size_t k = 0; k < size.rank; ++k) {
        const double factor = left[k * size.rows + row];
        const float* const from = right + k * size.columns + begin;
        for (std::size_t i = 0; i < n; ++i) {
          sums[i] += factor * double{from[i]};
        }
      }
      f(row * size.columns + begin, sums, n);
    }
  }
}

inline double norm(const float* column, std::size_t n) { return std::sqrt(dot(column, column, n)); }

/// Takes `column`'s share along each of the first `count` unit vectors away. A share is rounded to
/// a float, so that its products are exact; a second pass takes what that leaves.
inline void project_out(const float* units, std::size_t rows, std::size_t count, float* column) {
  for (std::size_t other = 0; other < count; ++other) {
    const float* const unit = units + other * rows;
    const auto share = static_cast<float>(dot(unit, column, rows));
    for (std::size_t i = 0; i < rows; ++i) {
      column[i] = static_cast<float>(double{column[i]} - double{share} * double{unit[i]});
    }
  }
}

inline void orthonormalise(float* columns, std::size_t rows, std::size_t count) {
  for (std::size_t k = 0; k < count; ++k) {
    float* const column = columns + k * rows;
    const double before = norm(column, rows);
    project_out(columns, rows, k, column);
    project_out(columns, rows, k, column);
    const double length = norm(column, rows);
    const bool vanished = !(length > 1e-6 * before);
    for (std::size_t i = 0; i < rows; ++i) {
      column[i] = vanished ? 0.0f : static_cast<float>(double{column[i]} / length);
    }
  }
}

}  // namespace detail

/// left = matrix * right.
template <host_queue Queue>
void matrix_times_thin(Queue& queue, const float* matrix, const float* right, const low_rank& size,
                       float* left) {
  queue.run([=] { widest([=] { detail::matrix_times_thin(matrix, right, size, left); }); });
}

/// right = transposed matrix * left.
template <host_queue Queue>
void transposed_times_thin(Queue& queue, const float* matrix, const float* left,
                           const low_rank& size, float* right) {
  queue.run([=] { widest([=] { detail::transposed_times_thin(matrix, left, size, right); }); });
}

/// Columns become orthonormal, in their order (modified Gram-Schmidt, twice); one that lies in the
/// others' span, up to rounding, becomes 0.
template <host_queue Queue>
void orthonormalise(Queue& queue, float* columns, std::size_t rows, std::size_t count) {
  queue.run([=] { widest([=] { detail::orthonormalise(columns, rows, count); }); });
}

/// product = average * left * transposed right, and `rest` loses what `ranks` share of the sum.
template <host_queue Queue>
void expand_and_subtract(Queue& queue, const float* left, const float* right, const low_rank& size,
                         float average, int ranks, std::span<float> product,
                         std::span<float> rest) {
  queue.run([=] {
    widest([=] {
      detail::each_strip_of_product(
          left, right, size, [=](std::size_t first, const detail::strip_sums& sums, std::size_t n) {
            for (std::size_t i = 0; i < n; ++i) {
              product[first + i] = static_cast<float>(sums[i] * double{average});
              rest[first + i] = static_cast<float>(double{rest[first + i]} - sums[i] / ranks);
            }
          });
    });
  });
}

/// Columns that are all 0 become random ones, uniform in [-1, 1): column k draws from stream k.
template <host_queue Queue>
void fill_empty_columns(Queue& queue, float* columns, std::size_t rows, std::size_t count,
                        const counted_random& random) {
  queue.run([=] {
    for (std::size_t k = 0; k < count; ++k) {
      float* const column = columns + k * rows;
      if (std::all_of(column, column + rows, [](float each) { return each == 0; })) {
        for (std::size_t i = 0; i < rows; ++i) {
          column[i] = static_cast<float>(2 * random.stream(k).uniform(i) - 1);
        }
      }
    }
  });
}

}  // namespace tutti::kernels
