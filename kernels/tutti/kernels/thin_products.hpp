#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
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

/// Returns the same for products that read a line of each row in turn, but 0 where many rows begin
/// at the same place of a page: there the next rows would evict the current ones from the
/// first-level cache.
inline std::size_t to_next_rows_beside(const low_rank& size, std::size_t row, std::size_t rows) {
  return size.columns % 512 == 0 ? 0 : to_next_rows(size, row, rows);
}

/// N doubles, as a vector of the processor holds them.
template <std::size_t N>
struct vector_of {
  using type [[gnu::vector_size(N * sizeof(double))]] = double;
};
template <std::size_t N>
using doubles = typename vector_of<N>::type;

/// Sets `to` to neighbouring floats. Compilers make this one instruction.
template <std::size_t... Lane>
void widen(const float* from, doubles<sizeof...(Lane)>& to, std::index_sequence<Lane...>) {
  to = doubles<sizeof...(Lane)>{from[Lane]...};
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

/// How many elements of a row are read before they are multiplied: so few that they stay in the
/// first-level cache, and so many that their sums are seldom moved to registers and back.
inline constexpr std::size_t dot_piece = 256;

/// Pieces of some rows, in groups of an element for each lane.
template <std::size_t Rows>
using dot_pieces = float[Rows][dot_piece / dot_lanes][dot_lanes];

/// Adds the products of pieces with as many elements of each of `Together` columns of the thin
/// matrix, which begin at `right`, to the sums of each pair of a row and a column: those of the
/// lanes from `lane` on that a vector holds. So few sums stay in registers.
template <std::size_t Lanes, std::size_t Together, std::size_t Rows, std::size_t... Pair>
void add_lanes(const dot_pieces<Rows>& held, std::size_t groups, const float* right,
               std::size_t columns, double (*sums)[dot_lanes], std::size_t lane,
               std::index_sequence<Pair...>) {
  constexpr auto each_lane = std::make_index_sequence<Lanes>();
  doubles<Lanes> total[sizeof...(Pair)];
  (std::memcpy(&total[Pair], sums[Pair] + lane, sizeof total[Pair]), ...);
  for (std::size_t group = 0; group < groups; ++group) {
    doubles<Lanes> of_row[Rows];
    doubles<Lanes> of_column;
    const auto add = [&](auto pair) {  // column by column, so that one is in a register at a time
      constexpr std::size_t row = pair % Rows;
      constexpr std::size_t k = pair / Rows;
      if constexpr (k == 0) {
        widen(held[row][group] + lane, of_row[row], each_lane);
      }
      if constexpr (row == 0) {
        widen(right + k * columns + group * dot_lanes + lane, of_column, each_lane);
      }
      total[row * Together + k] += of_row[row] * of_column;
    };
    (add(std::integral_constant<std::size_t, Pair>()), ...);
  }
  (std::memcpy(sums[Pair] + lane, &total[Pair], sizeof total[Pair]), ...);
}

/// Multiplies `groups` groups of elements of each of some rows, the first row's from `first` on,
/// with those of `Together` columns. Prefetches the elements that begin `ahead` elements further
/// on. Elements of all rows are read before the first is written back: where rows begin at the same
/// place of their pages, a processor delays a read behind a write to the row before ("4K
/// aliasing").
template <std::size_t Lanes, std::size_t Together, class Elements, std::size_t... Pair>
void add_pieces(const Elements& elements, std::size_t first, std::size_t ahead, std::size_t groups,
                const float* right, std::size_t columns, double (*sums)[dot_lanes],
                std::index_sequence<Pair...> pairs) {
  constexpr std::size_t rows = sizeof...(Pair) / Together;
  alignas(64) dot_pieces<rows> held;
  for (std::size_t group = 0; group < groups; ++group) {
    const std::size_t begin = first + group * dot_lanes;
    for (std::size_t row = 0; row < rows; ++row) {
      elements.read(begin + row * columns, held[row][group]);
    }
    for (std::size_t row = 0; row < rows; ++row) {
      elements.keep(begin + row * columns, held[row][group]);
      elements.ask_for(begin + row * columns + ahead);
    }
  }
  for (std::size_t lane = 0; lane < dot_lanes; lane += Lanes) {
    add_lanes<Lanes, Together, rows>(held, groups, right, columns, sums, lane, pairs);
  }
}

/// Multiplies one element of each of some rows with one of each column, in `lane`.
template <std::size_t Rows, std::size_t Together, class Elements>
void add_one(const Elements& elements, std::size_t first, const float* right, std::size_t columns,
             double (*sums)[dot_lanes], std::size_t lane) {
  for (std::size_t row = 0; row < Rows; ++row) {
    float held[1];
    elements.read(first + row * columns, held);
    elements.keep(first + row * columns, held);
    for (std::size_t k = 0; k < Together; ++k) {
      sums[row * Together + k][lane] += double{held[0]} * double{right[k * columns]};
    }
  }
}

/// Writes the product of each of some rows, from `row` on, with each of `Together` columns to
/// `left`. Each is added in the order of `dot`.
template <std::size_t Lanes, std::size_t Together, class Elements, std::size_t... Pair>
void rows_times_columns(const Elements& elements, std::size_t row, const float* right,
                        const low_rank& size, const segments& cut, float* left,
                        std::index_sequence<Pair...> pairs) {
  constexpr std::size_t rows = sizeof...(Pair) / Together;
  const std::size_t columns = size.columns;
  const std::size_t first = row * columns;
  const std::size_t next = to_next_rows(size, row, rows);
  double totals[sizeof...(Pair)] = {};
  for (std::size_t segment = 0; segment < cut.count(); ++segment) {
    const std::size_t end = cut.end(segment);
    std::size_t i = cut.begin(segment);
    double partial[sizeof...(Pair)][dot_lanes] = {};
    while (i + dot_lanes <= end) {
      const std::size_t n = std::min(dot_piece, (end - i) / dot_lanes * dot_lanes);
      const std::size_t behind = columns - i - n;
      const std::size_t ahead = behind < dot_lanes ? next - i : std::min(n, behind);
      add_pieces<Lanes, Together>(elements, first + i, ahead, n / dot_lanes, right + i, columns,
                                  partial, pairs);
      i += n;
    }
    for (std::size_t lane = 0; i < end; ++i, ++lane) {
      add_one<rows, Together>(elements, first + i, right + i, columns, partial, lane);
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
template <std::size_t Lanes, class Elements>
void matrix_times_thin(const Elements& elements, const float* right, const low_rank& size,
                       float* left) {
  const segments cut = of_a_product(size.rows * size.rank, size.columns);
  some_rows<3>(size.rows, [&](std::size_t row, auto rows) {
    some_columns(size.rank, [&](std::size_t first, auto together) {
      const auto multiply = [&](const auto& from) {
        rows_times_columns<Lanes, together>(from, row, right + first * size.columns, size, cut,
                                            left + first * size.rows,
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

/// The factors of some rows, for each of some columns of the thin matrix.
template <std::size_t Rows, std::size_t Together>
using factors_of_rows = double[Rows][Together];

inline constexpr std::size_t vectors_together = 2;

/// Adds two vectors of neighbouring elements of each of some rows, in the rows' order, each times
/// its row's factors. The sums are read and written once for all of these rows.
template <std::size_t Lanes, std::size_t Rows, std::size_t Together, std::size_t... Vector>
void add_neighbours(const float* from, std::size_t columns, std::size_t next,
                    const factors_of_rows<Rows, Together>& factors, std::size_t i,
                    strips_of_sums<Together>& sums, std::index_sequence<Vector...>) {
  doubles<Lanes> held[Together * vectors_together];
  const auto place = [&](std::size_t vector) {
    return sums[vector / vectors_together].data() + i + vector % vectors_together * Lanes;
  };
  (std::memcpy(&held[Vector], place(Vector), sizeof held[Vector]), ...);
  for (std::size_t row = 0; row < Rows; ++row) {
    const float* const elements = from + row * columns + i;
    doubles<Lanes> of_row[vectors_together];
    for (std::size_t vector = 0; vector < vectors_together; ++vector) {
      widen(elements + vector * Lanes, of_row[vector], std::make_index_sequence<Lanes>());
    }
    ask_for(elements + next);
    ((held[Vector] += factors[row][Vector / vectors_together] * of_row[Vector % vectors_together]),
     ...);
  }
  (std::memcpy(place(Vector), &held[Vector], sizeof held[Vector]), ...);
}

/// Adds the first n columns of `Rows` rows, from `row` on, each times its row's factors.
template <std::size_t Lanes, std::size_t Rows, std::size_t Together>
void add_rows(const float* matrix, const float* left, const low_rank& size, std::size_t n,
              std::size_t row, strips_of_sums<Together>& sums) {
  constexpr std::size_t at_once = vectors_together * Lanes;
  factors_of_rows<Rows, Together> factors;
  for (std::size_t k = 0; k < Together; ++k) {
    for (std::size_t each = 0; each < Rows; ++each) {
      factors[each][k] = left[k * size.rows + row + each];
    }
  }
  const float* const from = matrix + row * size.columns;
  const std::size_t next = to_next_rows_beside(size, row, Rows);
  std::size_t i = 0;
  for (; i + at_once <= n; i += at_once) {
    add_neighbours<Lanes, Rows, Together>(from, size.columns, next, factors, i, sums,
                                          std::make_index_sequence<Together * vectors_together>());
  }
  for (; i < n; ++i) {
    for (std::size_t k = 0; k < Together; ++k) {
      for (std::size_t each = 0; each < Rows; ++each) {
        sums[k][i] += factors[each][k] * double{from[each * size.columns + i]};
      }
    }
  }
}

/// Sets `total` to the sums over the rows [begin, end) of a matrix's first n columns, each row
/// times its factors.
template <std::size_t Lanes, std::size_t Together>
void sum_rows(const float* matrix, const float* factors, const low_rank& size, std::size_t n,
              std::size_t begin, std::size_t end, strips_of_sums<Together>& total) {
  const segments cut = of_rows(end - begin);
  clear(total, n);
  for (std::size_t segment = 0; segment < cut.count(); ++segment) {
    strips_of_sums<Together> sums;
    clear(sums, n);
    const std::size_t end_of_segment = begin + cut.end(segment);
    std::size_t row = begin + cut.begin(segment);
    for (; row + 8 <= end_of_segment; row += 8) {
      add_rows<Lanes, 8>(matrix, factors, size, n, row, sums);
    }
    for (; row < end_of_segment; ++row) {
      add_rows<Lanes, 1>(matrix, factors, size, n, row, sums);
    }
    add(total, sums, n);
  }
}

template <std::size_t Lanes, std::size_t Together>
void transposed_times_columns(const float* matrix, const float* left, const low_rank& size,
                              float* right) {
  const segments cut = of_a_product(size.columns * size.rank, size.rows);
  for (std::size_t first = 0; first < size.columns; first += strip) {
    const std::size_t n = std::min(strip, size.columns - first);
    strips_of_sums<Together> sums;
    clear(sums, n);
    for (std::size_t segment = 0; segment < cut.count(); ++segment) {
      strips_of_sums<Together> of_segment;
      sum_rows<Lanes>(matrix + first, left, size, n, cut.begin(segment), cut.end(segment),
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

template <std::size_t Lanes>
void transposed_times_thin(const float* matrix, const float* left, const low_rank& size,
                           float* right) {
  some_columns(size.rank, [&](std::size_t first, auto together) {
    transposed_times_columns<Lanes, together>(matrix, left + first * size.rows, size,
                                              right + first * size.columns);
  });
}

}  // namespace detail

}  // namespace tutti::kernels
