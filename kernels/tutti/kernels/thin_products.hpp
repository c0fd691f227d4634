#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <type_traits>
#include <utility>

#include "tutti/base/host_device.hpp"
#include "tutti/base/sum_in_lanes.hpp"
#include "tutti/kernels/blocks.hpp"

// Products of a matrix with a thin one, which has few columns, as a host computes them. A matrix is
// stored row by row, a thin one column by column. Sums along a matrix are added in double, in which
// products of floats are exact, and the product of the two thin factors is added in floats. Both
// are added in one fixed order, so that every processor gives the same bits, whatever the width of
// its vectors, and so does every device. Eigen is not used, because its order of addition depends
// on the processor's vectors, and no device repeats that order.
namespace tutti::kernels {

/// The size of a low-rank approximation: the rows and columns of the matrix, and the columns of its
/// two thin factors (the rank).
struct low_rank {
  std::size_t rows{};
  std::size_t columns{};
  std::size_t rank{};
};

namespace detail {

/// Where a sum is cut into segments, so that a device has work for all its threads when there are
/// few sums of many terms. Each segment is summed on its own, and then the segments' sums are added
/// in order.
class segments {
 public:
  /// Cuts `terms` terms into at most `most` segments of `least` terms or more. Only the last
  /// segments may be shorter, or empty.
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

/// How many partial sums a device has room for between the kernel that writes them and the kernel
/// that adds them.
inline constexpr std::size_t most_partial_sums = 8192;

/// Returns how to cut each of the `sums` sums of a product with a thin matrix.
constexpr segments of_a_product(std::size_t sums, std::size_t terms) {
  return segments(terms, 1024, most_partial_sums / std::max<std::size_t>(sums, 1));
}
/// Returns how to cut one sum over a column: into at most as many segments as a block of threads
/// can add, with sixteen threads a segment.
constexpr segments of_a_column(std::size_t rows) { return segments(rows, 64, 32); }
/// Returns how to divide rows over the warps of a block, of which there are sixteen.
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

/// Calls `f(first, size)` for groups of neighbouring columns that together are the `count` columns
/// of a thin matrix. The size is a compile-time constant. The columns of a group share one read of
/// the matrix.
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

/// Calls `f(row, size)` for groups of at most `Most` neighbouring rows that together are all
/// `count` rows. The size is a compile-time constant. The rows of a group share one read of the
/// thin matrix. Two rows take hardly longer than one, so no group of `Most` is made where it would
/// leave a single row.
template <std::size_t Most, class F>
void some_rows(std::size_t count, const F& f) {
  std::size_t row = 0;
  for (; row + Most <= count && row + Most + 1 != count; row += Most) {
    f(row, std::integral_constant<std::size_t, Most>());
  }
  for (; row + 2 <= count; row += 2) {
    f(row, std::integral_constant<std::size_t, 2>());
  }
  if (row < count) {
    f(row, std::integral_constant<std::size_t, 1>());
  }
}

/// Returns how many elements lie between the begin of a group of rows and the begin of the next
/// group of as many rows; 0 if there is no such group. Products prefetch the next rows while they
/// add the current ones, because a row ends before a processor's prefetchers have settled on it.
inline std::size_t to_next_rows(const low_rank& size, std::size_t row, std::size_t rows) {
  return row + 2 * rows <= size.rows ? rows * size.columns : 0;
}

/// The elements of a matrix that a product only reads. They are copied to a local array, so that
/// the compiler sees that no other pointer leads there.
struct elements_of {
  const float* matrix;

  template <std::size_t N>
  void read(std::size_t first, float (&values)[N]) const {
    for (std::size_t i = 0; i < N; ++i) {
      values[i] = matrix[first + i];
    }
  }
  template <std::size_t N>
  void keep(std::size_t, const float (&)[N]) const {}
  void ask_for(std::size_t element) const { detail::ask_for(matrix + element); }
};

/// The elements of a matrix to which the product adds an addend as it reads them. `keep` writes the
/// sums back.
struct elements_with_addend {
  float* matrix;
  const float* addend;

  template <std::size_t N>
  void read(std::size_t first, float (&values)[N]) const {
    for (std::size_t i = 0; i < N; ++i) {
      values[i] = matrix[first + i] + addend[first + i];
    }
  }
  template <std::size_t N>
  void keep(std::size_t first, const float (&values)[N]) const {
    for (std::size_t i = 0; i < N; ++i) {
      matrix[first + i] = values[i];
    }
  }
  void ask_for(std::size_t element) const {
    detail::ask_for(matrix + element);
    detail::ask_for(addend + element);
  }
};

inline constexpr std::size_t dot_lanes = 16;

/// Adds the products of `N` neighbouring elements, each to the sum of its lane.
template <std::size_t N, class MultiplyAdd>
void add_products(const MultiplyAdd& multiply_add, const float (&a)[N], const float* b,
                  double* sums) {
  for (std::size_t lane = 0; lane < N; ++lane) {
    sums[lane] = multiply_add(double{a[lane]}, double{b[lane]}, sums[lane]);
  }
}

/// Multiplies `N` neighbouring elements of each of some rows with `N` elements of each of
/// `Together` columns of the thin matrix, and adds the products to the sums of each pair of a row
/// and a column, from `lane` on. The first row's elements begin at `first`, those of the columns at
/// `right`. All elements are read before the first is written back: where rows begin at the same
/// place of their pages, a processor delays a read behind a write to the row before ("4K
/// aliasing").
template <std::size_t N, std::size_t Together, class MultiplyAdd, class Elements,
          std::size_t... Pair>
void add_pairs(const MultiplyAdd& multiply_add, const Elements& elements, std::size_t first,
               const float* right, std::size_t columns, double (*sums)[dot_lanes], std::size_t lane,
               std::index_sequence<Pair...>) {
  constexpr std::size_t rows = sizeof...(Pair) / Together;
  float held[rows][N];
  for (std::size_t row = 0; row < rows; ++row) {
    elements.read(first + row * columns, held[row]);
  }
  for (std::size_t row = 0; row < rows; ++row) {
    elements.keep(first + row * columns, held[row]);
  }
  (add_products(multiply_add, held[Pair / Together], right + Pair % Together * columns,
                sums[Pair] + lane),
   ...);
}

/// Writes the product of each of some rows, from `row` on, with each of `Together` columns to
/// `left`. Each is added in the order of `dot`.
template <std::size_t Together, class MultiplyAdd, class Elements, std::size_t... Pair>
void rows_times_columns(const MultiplyAdd& multiply_add, const Elements& elements, std::size_t row,
                        const float* right, const low_rank& size, const segments& cut, float* left,
                        std::index_sequence<Pair...> pairs) {
  constexpr std::size_t rows = sizeof...(Pair) / Together;
  const std::size_t columns = size.columns;
  const std::size_t first = row * columns;
  const std::size_t next = first + to_next_rows(size, row, rows);
  double totals[sizeof...(Pair)] = {};
  for (std::size_t segment = 0; segment < cut.count(); ++segment) {
    const std::size_t end = cut.end(segment);
    std::size_t i = cut.begin(segment);
    double partial[sizeof...(Pair)][dot_lanes] = {};
    for (; i + dot_lanes <= end; i += dot_lanes) {
      add_pairs<dot_lanes, Together>(multiply_add, elements, first + i, right + i, columns, partial,
                                     0, pairs);
      for (std::size_t each = 0; each < rows; ++each) {
        elements.ask_for(next + each * columns + i);
      }
    }
    for (std::size_t lane = 0; i < end; ++i, ++lane) {
      add_pairs<1, Together>(multiply_add, elements, first + i, right + i, columns, partial, lane,
                             pairs);
    }
    for (std::size_t pair = 0; pair < sizeof...(Pair); ++pair) {
      double total = 0;
      for (const double each : partial[pair]) {
        total += each;
      }
      totals[pair] += total;
    }
  }
  for (std::size_t pair = 0; pair < sizeof...(Pair); ++pair) {
    left[pair % Together * size.rows + row + pair / Together] = static_cast<float>(totals[pair]);
  }
}

/// left = matrix * right. The first group of columns reads `elements`, which may add an addend and
/// write the sums back; later groups read the matrix as it then is.
template <class MultiplyAdd, class Elements>
void matrix_times_thin(const MultiplyAdd& multiply_add, const Elements& elements,
                       const float* right, const low_rank& size, float* left) {
  const segments cut = of_a_product(size.rows * size.rank, size.columns);
  some_rows<3>(size.rows, [&](std::size_t row, auto rows) {
    some_columns(size.rank, [&](std::size_t first, auto together) {
      const auto multiply = [&](const auto& from) {
        rows_times_columns<together>(multiply_add, from, row, right + first * size.columns, size,
                                     cut, left + first * size.rows,
                                     std::make_index_sequence<rows * together>());
      };
      if (first == 0) {
        multiply(elements);
      } else {
        multiply(elements_of{elements.matrix});
      }
    });
  });
}

/// How many columns of the matrix are summed at a time: so few that their sums stay in a near
/// cache. In each row they are a page of memory.
constexpr std::size_t strip = 1024;
using strip_sums = std::array<double, strip>;

/// The sums of a strip, for each of some columns of a thin matrix, which share one read of the
/// matrix.
template <std::size_t Together>
using strips_of_sums = std::array<strip_sums, Together>;

/// Sets the first n sums of each column to 0.
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

/// Adds `N` neighbouring elements of each of some rows, in the rows' order, each times its row's
/// factors. The sums are read and written once for all of these rows.
template <std::size_t N, std::size_t Together, class MultiplyAdd, std::size_t... Row>
void add_neighbours(const MultiplyAdd& multiply_add, const float* from, std::size_t columns,
                    const double (&factor)[Together][sizeof...(Row)], std::size_t i,
                    strips_of_sums<Together>& sums, std::index_sequence<Row...>) {
  double held[Together][N];
  for (std::size_t k = 0; k < Together; ++k) {
    for (std::size_t lane = 0; lane < N; ++lane) {
      held[k][lane] = sums[k][i + lane];
    }
  }
  const auto add_row = [&](std::size_t row) {
    for (std::size_t k = 0; k < Together; ++k) {
      for (std::size_t lane = 0; lane < N; ++lane) {
        held[k][lane] =
            multiply_add(factor[k][row], double{from[row * columns + i + lane]}, held[k][lane]);
      }
    }
  };
  (add_row(Row), ...);
  for (std::size_t k = 0; k < Together; ++k) {
    for (std::size_t lane = 0; lane < N; ++lane) {
      sums[k][i + lane] = held[k][lane];
    }
  }
}

/// Adds the first n columns of `Rows` rows, from `row` on, each times its row's factors.
template <std::size_t Rows, class MultiplyAdd, std::size_t Together>
void add_rows(const MultiplyAdd& multiply_add, const float* matrix, const float* factors,
              const low_rank& size, std::size_t n, std::size_t row,
              strips_of_sums<Together>& sums) {
  constexpr std::size_t at_once = 8;
  double factor[Together][Rows];
  for (std::size_t k = 0; k < Together; ++k) {
    for (std::size_t each = 0; each < Rows; ++each) {
      factor[k][each] = factors[k * size.rows + row + each];
    }
  }
  const float* const from = matrix + row * size.columns;
  const float* const next = from + to_next_rows(size, row, Rows);
  const auto rows = std::make_index_sequence<Rows>();
  std::size_t i = 0;
  for (; i + at_once <= n; i += at_once) {
    add_neighbours<at_once>(multiply_add, from, size.columns, factor, i, sums, rows);
    for (std::size_t each = 0; each < Rows; ++each) {
      ask_for(next + each * size.columns + i);
    }
  }
  for (; i < n; ++i) {
    add_neighbours<1>(multiply_add, from, size.columns, factor, i, sums, rows);
  }
}

/// Sets `total` to the sums over the rows [begin, end) of a matrix's first n columns, each row
/// times its factors.
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
    for (; row + 8 <= end_of_segment; row += 8) {
      add_rows<8>(multiply_add, matrix, factors, size, n, row, sums);
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

/// How many columns of a product are computed at a time: so many that reads of the thin matrices
/// are shared, and so few that the sums of four rows stay in registers.
constexpr std::size_t product_block = 32;

/// Calls `f(row, column, sums)` for blocks of `Rows` rows, from `row` on, and `Columns` columns of
/// the product of both factors, from column `begin` on, as long as whole blocks are left. Returns
/// the column after the last block. The rank must not be 0.
template <std::size_t Columns, std::size_t Rows, class F>
std::size_t some_blocks_of_product(const float* left, const float* right, const low_rank& size,
                                   std::size_t row, std::size_t begin, const F& f) {
  for (; begin + Columns <= size.columns; begin += Columns) {
    float sums[Rows][Columns] = {};
    std::size_t k = 0;
    do {  // at least once, or a compiler would keep the sums in memory
      for (std::size_t each = 0; each < Rows; ++each) {
        const float factor = left[k * size.rows + row + each];
        for (std::size_t i = 0; i < Columns; ++i) {
          sums[each][i] += factor * right[k * size.columns + begin + i];
        }
      }
    } while (++k != size.rank);
    f(row, begin, sums);
  }
  return begin;
}

/// Calls `f(row, column, sums)` for every block of the product of both factors. `sums[i][j]` is the
/// element of row `row` + i and column `column` + j.
template <class F>
void each_block_of_product(const float* left, const float* right, const low_rank& size,
                           const F& f) {
  some_rows<4>(size.rows, [&](std::size_t row, auto rows) {
    std::size_t begin = some_blocks_of_product<product_block, rows>(left, right, size, row, 0, f);
    begin = some_blocks_of_product<8, rows>(left, right, size, row, begin, f);
    some_blocks_of_product<1, rows>(left, right, size, row, begin, f);
  });
}

/// Subtracts the sums times `share` from a block of `rest`, and then writes the sums times
/// `average` to `product`. In this order fewer reads wait for writes to the same place of another
/// page (see `add_pairs`). Prefetches the block that lies `next` elements further on.
template <std::size_t Rows, std::size_t Columns>
void write_block(const float (&sums)[Rows][Columns], float average, float share, float* product,
                 float* rest, std::size_t columns, std::size_t next) {
  for (std::size_t row = 0; row < Rows; ++row) {
    for (std::size_t i = 0; i < Columns; ++i) {
      rest[row * columns + i] -= sums[row][i] * share;
    }
  }
  for (std::size_t row = 0; row < Rows; ++row) {
    for (std::size_t i = 0; i < Columns; ++i) {
      product[row * columns + i] = sums[row][i] * average;
    }
  }
  for (std::size_t row = 0; row < Rows; ++row) {
    for (std::size_t i = 0; i < Columns; i += 16) {
      ask_for(rest + next + row * columns + i);
      ask_for(product + next + row * columns + i);
    }
  }
}

}  // namespace detail

}  // namespace tutti::kernels
