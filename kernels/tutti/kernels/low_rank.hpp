#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <span>

#include "tutti/base/host_device.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/kernels/counted_random.hpp"
#include "tutti/kernels/product_of_factors.hpp"
#include "tutti/kernels/thin_products.hpp"
#include "tutti/kernels/widest.hpp"

// A matrix as a product of two thin ones. Columns are made orthonormal by code of this library's
// own, because Eigen's QR decomposition would make every translation unit that includes this header
// compile five times as long, and adds in another order.
namespace tutti::kernels {

namespace detail {

inline double norm(const float* column, const segments& cut) {
  return std::sqrt(dot(column, column, cut));
}

/// Whether nothing but rounding is left of a column that had the length `before`.
TUTTI_HD inline bool vanished(double length, double before) { return !(length > 1e-6 * before); }

/// Subtracts from `column` its component along each of the first `count` unit vectors. A
/// component's length is rounded to a float, so that its products are exact; a second pass
/// subtracts what that leaves.
inline void project_out(const float* units, std::size_t rows, std::size_t count, float* column) {
  for (std::size_t other = 0; other < count; ++other) {
    const float* const unit = units + other * rows;
    const auto share = static_cast<float>(dot(unit, column, of_a_column(rows)));
    for (std::size_t i = 0; i < rows; ++i) {
      column[i] = static_cast<float>(double{column[i]} - double{share} * double{unit[i]});
    }
  }
}

/// Returns the random number at `place`, uniform in [-1, 1).
TUTTI_HD inline float random_at(const counted_random& random, std::size_t place) {
  return static_cast<float>(2 * random.uniform(place) - 1);
}

inline void orthonormalise(float* columns, std::size_t rows, std::size_t count) {
  const segments cut = of_a_column(rows);
  for (std::size_t k = 0; k < count; ++k) {
    float* const column = columns + k * rows;
    const double before = norm(column, cut);
    project_out(columns, rows, k, column);
    project_out(columns, rows, k, column);
    const double length = norm(column, cut);
    const bool nothing = vanished(length, before);
    for (std::size_t i = 0; i < rows; ++i) {
      column[i] = nothing ? 0.0f : static_cast<float>(double{column[i]} / length);
    }
  }
}

}  // namespace detail

/// left = matrix * right.
template <host_queue Queue>
void matrix_times_thin(Queue& queue, const float* matrix, const float* right, const low_rank& size,
                       float* left) {
  queue.run([=] {
    widest_of_exact_products([=](auto lanes) {
      detail::matrix_times_thin<lanes>(detail::elements_of{matrix}, right, size, left);
    });
  });
}
void matrix_times_thin(cuda::stream& queue, const float* matrix, const float* right,
                       const low_rank& size, float* left);

/// matrix += addend, then left = matrix * right. A host does both in one pass.
template <host_queue Queue>
void add_and_multiply(Queue& queue, std::span<float> matrix, std::span<const float> addend,
                      const float* right, const low_rank& size, float* left) {
  queue.run([=] {
    const detail::elements_with_addend elements{matrix.data(), addend.data()};
    widest_of_exact_products(
        [=](auto lanes) { detail::matrix_times_thin<lanes>(elements, right, size, left); });
  });
}
void add_and_multiply(cuda::stream& queue, std::span<float> matrix, std::span<const float> addend,
                      const float* right, const low_rank& size, float* left);

/// right = transposed matrix * left.
template <host_queue Queue>
void transposed_times_thin(Queue& queue, const float* matrix, const float* left,
                           const low_rank& size, float* right) {
  queue.run([=] {
    widest_of_exact_products(
        [=](auto lanes) { detail::transposed_times_thin<lanes>(matrix, left, size, right); });
  });
}
void transposed_times_thin(cuda::stream& queue, const float* matrix, const float* left,
                           const low_rank& size, float* right);

/// Makes columns orthonormal, in their order (modified Gram-Schmidt, twice). A column that lies in
/// the span of those before it, up to rounding, becomes 0.
template <host_queue Queue>
void orthonormalise(Queue& queue, float* columns, std::size_t rows, std::size_t count) {
  queue.run([=] { widest([=] { detail::orthonormalise(columns, rows, count); }); });
}
void orthonormalise(cuda::stream& queue, float* columns, std::size_t rows, std::size_t count);

/// Let S = left * transposed right, which is a sum over all ranks. Sets `product` to average * S,
/// and subtracts S / ranks from `rest`. If `average` is 1 / ranks, `rest` loses exactly the floats
/// of `product`.
template <host_queue Queue>
void expand_and_subtract(Queue& queue, const float* left, const float* right, const low_rank& size,
                         float average, int ranks, std::span<float> product,
                         std::span<float> rest) {
  queue.run([=] {
    const float share = 1.0f / static_cast<float>(ranks);
    widest([=] {
      detail::each_block_of_product(
          left, right, size, [=](std::size_t row, std::size_t column, const auto& sums) {
            const std::size_t first = row * size.columns + column;
            detail::write_block(sums, average, share, product.data() + first, rest.data() + first,
                                size.columns,
                                detail::to_next_rows_beside(size, row, std::size(sums)));
          });
    });
  });
}
void expand_and_subtract(cuda::stream& queue, const float* left, const float* right,
                         const low_rank& size, float average, int ranks, std::span<float> product,
                         std::span<float> rest);

/// Fills columns that are all 0 with random numbers, uniform in [-1, 1). Column k draws from stream
/// k of `random`.
template <host_queue Queue>
void fill_empty_columns(Queue& queue, float* columns, std::size_t rows, std::size_t count,
                        const counted_random& random) {
  queue.run([=] {
    for (std::size_t k = 0; k < count; ++k) {
      float* const column = columns + k * rows;
      if (std::all_of(column, column + rows, [](float each) { return each == 0; })) {
        for (std::size_t i = 0; i < rows; ++i) {
          column[i] = detail::random_at(random.stream(k), i);
        }
      }
    }
  });
}
void fill_empty_columns(cuda::stream& queue, float* columns, std::size_t rows, std::size_t count,
                        const counted_random& random);

}  // namespace tutti::kernels
