#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <type_traits>
#include <utility>

#include "tutti/base/host_device.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/sum_in_lanes.hpp"
#include "tutti/kernels/blocks.hpp"
#include "tutti/kernels/counted_random.hpp"
#include "tutti/kernels/widest.hpp"

// A matrix as a product of two thin ones. Matrices lie row after row, thin ones column after
// column. Sums along a matrix are made in double, where products of floats are exact, and the
// product of the factors in floats, both in one order, so every processor gives the same bits,
// whatever its vectors, and every device. Eigen adds in an order that follows
// from its processor's vectors, which no device repeats. Its QR decomposition would also make every
// unit that includes this compile five times as long.
namespace tutti::kernels {

/// The rows and columns of a matrix, and the columns of its two thin factors.
struct low_rank {
  std::size_t rows{};
  std::size_t columns{};
  std::size_t rank{};
};

namespace detail {

/// Where sums are cut, so that a device has work for its threads where sums are few and long: each
/// segment is added for itself, and then the segments are, in their order.
class segments {
 public:
  /// Segments of some `least` terms or more, and at most so many of them.
  TUTTI_HD constexpr segments(std::size_t terms, std::size_t least, std::size_t most)
      : terms_(terms),
        count_(terms < 2 * least || most < 2 ? 1
               : terms / least < most        ? terms / least
                                             : most),
        length_(block_count(terms, count_ * block_lanes) * block_lanes) {}

  TUTTI_HD constexpr std::size_t count() const { return count_; }
  TUTTI_HD constexpr std::size_t begin(std::size_t segment) const {
    return segment * length_ < terms_ ? segment * length_ : terms_;
  }
  TUTTI_HD constexpr std::size_t end(std::size_t segment) const { return begin(segment + 1); }

 private:
  std::size_t terms_;
  std::size_t count_;
  std::size_t length_;
};

/// Partial sums that a device has room for between two kernels.
inline constexpr std::size_t most_partial_sums = 8192;

/// Of so many sums of a product with a thin matrix.
constexpr segments of_a_product(std::size_t sums, std::size_t terms) {
  return segments(terms, 1024, most_partial_sums / std::max<std::size_t>(sums, 1));
}
/// Of one sum over a column, for as many threads as a block has.
constexpr segments of_a_column(std::size_t rows) { return segments(rows, 64, 32); }
/// Of so many rows, for as many warps as a block has.
TUTTI_HD constexpr segments of_rows(std::size_t rows) { return segments(rows, 32, 16); }

inline double dot(const float* a, const float* b, const segments& cut) {
  double total = 0;
  for (std::size_t segment = 0; segment < cut.count(); ++segment) {
    const std::size_t begin = cut.begin(segment);
    total += sum_in_lanes(cut.end(segment) - begin, [=](std::size_t i) {
      return double{a[begin + i]} * double{b[begin + i]};
    });
  }
  return total;
}

/// Calls `f(first, how many)`, the latter a constant, for `count` columns of thin matrices: those
/// that go together share a read of the matrix.
template <class F>
void some_columns(std::size_t count, const F& f) {
  std::size_t k = 0;
  for (; k + 4 <= count; k += 4) {
    f(k, std::integral_constant<std::size_t, 4>());
  }
  for (; k + 2 <= count; k += 2) {
    f(k, std::integral_constant<std::size_t, 2>());
  }
  if (k < count) {
    f(k, std::integral_constant<std::size_t, 1>());
  }
}

/// Calls `f(row, how many)`, the latter a constant, for all rows, `Most` at a time: those that go
/// together share a read of the thin matrix.
template <std::size_t Most, class F>
void some_rows(std::size_t count, const F& f) {
  std::size_t row = 0;
  for (; row + Most <= count; row += Most) {
    f(row, std::integral_constant<std::size_t, Most>());
  }
  for (; row < count; ++row) {
    f(row, std::integral_constant<std::size_t, 1>());
  }
}

inline constexpr std::size_t dot_lanes = 16;

template <class MultiplyAdd>
void add_products(const MultiplyAdd& multiply_add, const float* a, const float* b,
                  double (&sums)[dot_lanes]) {
  for (std::size_t lane = 0; lane < dot_lanes; ++lane) {
    sums[lane] = multiply_add(double{a[lane]}, double{b[lane]}, sums[lane]);
  }
}

/// Writes what `dot` makes of each of some rows and each of `Together` columns, pair by pair.
template <std::size_t Together, class MultiplyAdd, std::size_t... Pair>
void rows_times_columns(const MultiplyAdd& multiply_add, const float* matrix, const float* right,
                        const low_rank& size, const segments& cut, float* left,
                        std::index_sequence<Pair...>) {
  const std::size_t columns = size.columns;
  double totals[sizeof...(Pair)] = {};
  for (std::size_t segment = 0; segment < cut.count(); ++segment) {
    const std::size_t end = cut.end(segment);
    std::size_t i = cut.begin(segment);
    double partial[sizeof...(Pair)][dot_lanes] = {};
    for (; i + dot_lanes <= end; i += dot_lanes) {
      (add_products(multiply_add, matrix + Pair / Together * columns + i,
                    right + Pair % Together * columns + i, partial[Pair]),
       ...);
    }
    for (std::size_t pair = 0; pair < sizeof...(Pair); ++pair) {
      const float* const row = matrix + pair / Together * columns;
      const float* const column = right + pair % Together * columns;
      for (std::size_t rest = i; rest < end; ++rest) {
        partial[pair][rest - i] =
            multiply_add(double{row[rest]}, double{column[rest]}, partial[pair][rest - i]);
      }
      double total = 0;
      for (const double each : partial[pair]) {
        total += each;
      }
      totals[pair] += total;
    }
  }
  for (std::size_t pair = 0; pair < sizeof...(Pair); ++pair) {
    left[pair % Together * size.rows + pair / Together] = static_cast<float>(totals[pair]);
  }
}

/// Calls `before(first element, how many)` for rows that are multiplied next.
template <class MultiplyAdd, class Before>
void matrix_times_thin(const MultiplyAdd& multiply_add, const float* matrix, const float* right,
                       const low_rank& size, float* left, const Before& before) {
  const segments cut = of_a_product(size.rows * size.rank, size.columns);
  some_rows<2>(size.rows, [&](std::size_t row, auto rows) {
    before(row * size.columns, rows * size.columns);
    some_columns(size.rank, [&](std::size_t first, auto together) {
      rows_times_columns<together>(
          multiply_add, matrix + row * size.columns, right + first * size.columns, size, cut,
          left + first * size.rows + row, std::make_index_sequence<rows * together>());
    });
  });
}

/// Columns at a time whose sums stay in the first-level cache: as many as that allows, for each row
/// of them is a page of its own.
constexpr std::size_t strip = 512;
using strip_sums = std::array<double, strip>;

/// Sums of a strip, for each of some columns of a thin matrix: those share a read of the matrix.
template <std::size_t Together>
using strips_of_sums = std::array<strip_sums, Together>;

/// The first n sums of each become 0.
template <std::size_t Together>
void clear(strips_of_sums<Together>& sums, std::size_t n) {
  for (strip_sums& each : sums) {
    std::fill_n(each.begin(), n, 0.0);
  }
}

template <std::size_t Together>
void add(strips_of_sums<Together>& into, const strips_of_sums<Together>& from, std::size_t n) {
  for (std::size_t k = 0; k < Together; ++k) {
    for (std::size_t i = 0; i < n; ++i) {
      into[k][i] += from[k][i];
    }
  }
}

/// Adds rows from `row` on, in their order, each times its factors: sums are read and written once
/// for all of them.
template <std::size_t Rows, class MultiplyAdd, std::size_t Together>
void add_rows(const MultiplyAdd& multiply_add, const float* matrix, const float* factors,
              const low_rank& size, std::size_t n, std::size_t row,
              strips_of_sums<Together>& sums) {
  double factor[Together][Rows];
  for (std::size_t k = 0; k < Together; ++k) {
    for (std::size_t each = 0; each < Rows; ++each) {
      factor[k][each] = factors[k * size.rows + row + each];
    }
  }
  const float* const from = matrix + row * size.columns;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < Together; ++k) {
      double sum = sums[k][i];
      for (std::size_t each = 0; each < Rows; ++each) {
        sum = multiply_add(factor[k][each], double{from[each * size.columns + i]}, sum);
      }
      sums[k][i] = sum;
    }
  }
}

/// `total` becomes the sums over the rows [begin, end) of a matrix's first n columns, each times
/// the row's factors.
template <class MultiplyAdd, std::size_t Together>
void sum_rows(const MultiplyAdd& multiply_add, const float* matrix, const float* factors,
              const low_rank& size, std::size_t n, std::size_t begin, std::size_t end,
              strips_of_sums<Together>& total) {
  const segments cut = of_rows(end - begin);
  clear(total, n);
  for (std::size_t segment = 0; segment < cut.count(); ++segment) {
    strips_of_sums<Together> sums;
    clear(sums, n);
    const std::size_t end_of_segment = begin + cut.end(segment);
    std::size_t row = begin + cut.begin(segment);
    for (; row + 4 <= end_of_segment; row += 4) {
      add_rows<4>(multiply_add, matrix, factors, size, n, row, sums);
    }
    for (; row < end_of_segment; ++row) {
      add_rows<1>(multiply_add, matrix, factors, size, n, row, sums);
    }
    add(total, sums, n);
  }
}

template <std::size_t Together, class MultiplyAdd>
void transposed_times_columns(const MultiplyAdd& multiply_add, const float* matrix,
                              const float* left, const low_rank& size, float* right) {
  const segments cut = of_a_product(size.columns * size.rank, size.rows);
  for (std::size_t first = 0; first < size.columns; first += strip) {
    const std::size_t n = std::min(strip, size.columns - first);
    strips_of_sums<Together> sums;
    clear(sums, n);
    for (std::size_t segment = 0; segment < cut.count(); ++segment) {
      strips_of_sums<Together> of_segment;
      sum_rows(multiply_add, matrix + first, left, size, n, cut.begin(segment), cut.end(segment),
               of_segment);
      add(sums, of_segment, n);
    }
    for (std::size_t k = 0; k < Together; ++k) {
      for (std::size_t i = 0; i < n; ++i) {
        right[k * size.columns + first + i] = static_cast<float>(sums[k][i]);
      }
    }
  }
}

template <class MultiplyAdd>
void transposed_times_thin(const MultiplyAdd& multiply_add, const float* matrix, const float* left,
                           const low_rank& size, float* right) {
  some_columns(size.rank, [&](std::size_t first, auto together) {
    transposed_times_columns<together>(multiply_add, matrix, left + first * size.rows, size,
                                       right + first * size.columns);
  });
}

/// Columns of a product at a time: so many that reads of the thin matrices are shared, and so few
/// that the sums of four rows stay in registers.
constexpr std::size_t product_block = 32;

/// Adds, to the sums of a block of columns of each of some rows, the products of some columns of
/// the thin matrices.
template <std::size_t Together, std::size_t Rows, std::size_t Columns>
void add_columns(const float* left, const float* right, const low_rank& size,
                 float (&sums)[Rows][Columns]) {
  for (std::size_t k = 0; k < Together; ++k) {
    for (std::size_t row = 0; row < Rows; ++row) {
      const float factor = left[k * size.rows + row];
      for (std::size_t i = 0; i < Columns; ++i) {
        sums[row][i] += factor * right[k * size.columns + i];
      }
    }
  }
}

/// Calls `f(first element, sums)` for the product of the factors, block by block of some rows and
/// so many columns, from column `begin` on, while there are so many. Answers where that ends.
template <std::size_t Columns, std::size_t Rows, class F>
std::size_t some_blocks_of_product(const float* left, const float* right, const low_rank& size,
                                   std::size_t row, std::size_t begin, const F& f) {
  for (; begin + Columns <= size.columns; begin += Columns) {
    float sums[Rows][Columns] = {};
    some_columns(size.rank, [&](std::size_t first, auto together) {
      add_columns<together>(left + first * size.rows + row, right + first * size.columns + begin,
                            size, sums);
    });
    for (std::size_t each = 0; each < Rows; ++each) {
      f((row + each) * size.columns + begin, sums[each]);
    }
  }
  return begin;
}

/// Calls `f(first element, sums)` for the product of the factors.
template <class F>
void each_block_of_product(const float* left, const float* right, const low_rank& size,
                           const F& f) {
  some_rows<4>(size.rows, [&](std::size_t row, auto rows) {
    std::size_t begin = some_blocks_of_product<product_block, rows>(left, right, size, row, 0, f);
    begin = some_blocks_of_product<8, rows>(left, right, size, row, begin, f);
    some_blocks_of_product<1, rows>(left, right, size, row, begin, f);
  });
}

inline double norm(const float* column, const segments& cut) {
  return std::sqrt(dot(column, column, cut));
}

/// Whether of a column's length only rounding is left.
TUTTI_HD inline bool vanished(double length, double before) { return !(length > 1e-6 * before); }

/// Takes `column`'s share along each of the first `count` unit vectors away. A share is rounded to
/// a float, so that its products are exact; a second pass takes what that leaves.
inline void project_out(const float* units, std::size_t rows, std::size_t count, float* column) {
  for (std::size_t other = 0; other < count; ++other) {
    const float* const unit = units + other * rows;
    const auto share = static_cast<float>(dot(unit, column, of_a_column(rows)));
    for (std::size_t i = 0; i < rows; ++i) {
      column[i] = static_cast<float>(double{column[i]} - double{share} * double{unit[i]});
    }
  }
}

/// In [-1, 1).
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
    widest_of_exact_products([=](const auto& multiply_add) {
      detail::matrix_times_thin(multiply_add, matrix, right, size, left,
                                [](std::size_t, std::size_t) {});
    });
  });
}
void matrix_times_thin(cuda::stream& queue, const float* matrix, const float* right,
                       const low_rank& size, float* left);

/// matrix += addend, and left = matrix * right: on a host a row is multiplied while it is in the
/// cache.
template <host_queue Queue>
void add_and_multiply(Queue& queue, std::span<float> matrix, std::span<const float> addend,
                      const float* right, const low_rank& size, float* left) {
  queue.run([=] {
    float* const to = matrix.data();
    const float* const from = addend.data();
    widest_of_exact_products([=](const auto& multiply_add) {
      detail::matrix_times_thin(multiply_add, to, right, size, left,
                                [=](std::size_t first, std::size_t n) {
                                  for (std::size_t i = first; i < first + n; ++i) {
                                    to[i] += from[i];
                                  }
                                });
    });
  });
}
void add_and_multiply(cuda::stream& queue, std::span<float> matrix, std::span<const float> addend,
                      const float* right, const low_rank& size, float* left);

/// right = transposed matrix * left.
template <host_queue Queue>
void transposed_times_thin(Queue& queue, const float* matrix, const float* left,
                           const low_rank& size, float* right) {
  queue.run([=] {
    widest_of_exact_products([=](const auto& multiply_add) {
      detail::transposed_times_thin(multiply_add, matrix, left, size, right);
    });
  });
}
void transposed_times_thin(cuda::stream& queue, const float* matrix, const float* left,
                           const low_rank& size, float* right);

/// Columns become orthonormal, in their order (modified Gram-Schmidt, twice); one that lies in the
/// others' span, up to rounding, becomes 0.
template <host_queue Queue>
void orthonormalise(Queue& queue, float* columns, std::size_t rows, std::size_t count) {
  queue.run([=] { widest([=] { detail::orthonormalise(columns, rows, count); }); });
}
void orthonormalise(cuda::stream& queue, float* columns, std::size_t rows, std::size_t count);

/// product = average * left * transposed right, and `rest` loses what `ranks` share of the sum:
/// where that is the average, the very floats of `product`.
template <host_queue Queue>
void expand_and_subtract(Queue& queue, const float* left, const float* right, const low_rank& size,
                         float average, int ranks, std::span<float> product,
                         std::span<float> rest) {
  queue.run([=] {
    const float share = 1.0f / static_cast<float>(ranks);
    widest([=] {
      detail::each_block_of_product(left, right, size, [=](std::size_t first, const auto& sums) {
        for (std::size_t i = 0; i < std::size(sums); ++i) {
          product[first + i] = sums[i] * average;
        }
        for (std::size_t i = 0; i < std::size(sums); ++i) {
          rest[first + i] -= sums[i] * share;
        }
      });
    });
  });
}
void expand_and_subtract(cuda::stream& queue, const float* left, const float* right,
                         const low_rank& size, float average, int ranks, std::span<float> product,
                         std::span<float> rest);

/// Columns that are all 0 become random ones, uniform in [-1, 1): column k draws from stream k.
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
