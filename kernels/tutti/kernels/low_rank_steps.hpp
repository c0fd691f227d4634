#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "tutti/base/host_device.hpp"
#include "tutti/kernels/block_of_threads.hpp"
#include "tutti/kernels/blocks.hpp"
#include "tutti/kernels/counted_random.hpp"
#include "tutti/kernels/elements.hpp"
#include "tutti/kernels/low_rank.hpp"

/// How a device multiplies with thin matrices. It adds in the host's order, so its sums are the
/// host's, bit for bit. One read of the matrix serves four columns of a thin one. Neighbouring
/// threads read neighbouring elements.
///
/// Memory is far away, and converting floats to doubles is costly. So threads read many elements of
/// the matrix before they use the first, without a condition that would hold reads back, and share
/// what they read of a thin matrix. Past the last element zeros are added: a sum that began as +0
/// is never -0, so they change no bit.
namespace tutti::kernels::steps {

using kernels::detail::segments;

/// How many columns of a thin matrix a thread keeps sums of.
inline constexpr std::size_t most_together = 4;

/// Calls `f(first, size)` for groups of neighbouring columns that together are the `count` columns
/// of a thin matrix. The size is a compile-time constant.
template <class F>
TUTTI_HD void columns_together(std::size_t count, const F& f) {
  std::size_t first = 0;
  for (; first + most_together <= count; first += most_together) {
    f(first, std::integral_constant<std::size_t, most_together>());
  }
  if (count - first == 3) {
    f(first, std::integral_constant<std::size_t, 3>());
  } else if (count - first == 2) {
    f(first, std::integral_constant<std::size_t, 2>());
  } else if (count - first == 1) {
    f(first, std::integral_constant<std::size_t, 1>());
  }
}

/// Adds the product of two doubles that were floats. It is exact, so one rounding gives the same
/// sum as two.
TUTTI_HD inline void add_product(double& sum, double a, double b) {
#if defined(__CUDA_ARCH__)
  sum = __fma_rn(a, b, sum);
#else
  sum += a * b;
#endif
}

/// Where the `sums` sums of a product go: into `out` if they are not cut, otherwise the sums of
/// their segments into `partial`, for add_segments.
struct product_sums {
  segments cut;
  std::size_t sums;
  double* partial;
  float* out;

  TUTTI_HD void keep(std::size_t sum, std::size_t segment, double total) const {
    if (cut.count() == 1) {
      out[sum] = static_cast<float>(total);
    } else {
      partial[segment * sums + sum] = total;
    }
  }
};

/// Adds up the segments of a sum that is cut.
struct add_segments {
  product_sums of;

  TUTTI_HD void operator()(std::size_t sum) const {
    double total = 0;
    for (std::size_t segment = 0; segment < of.cut.count(); ++segment) {
      total += of.partial[segment * of.sums + sum];
    }
    of.out[sum] = static_cast<float>(total);
  }
};

/// left = matrix * right. Sixteen lanes add each segment of four rows, which share one read of the
/// thin matrix.
struct matrix_times_thin {
  const float* matrix;
  const float* right;
  low_rank size;
  product_sums to;

  static constexpr std::size_t rows_together = 4;

  template <std::size_t Columns>
  struct sums {
    double of[rows_together][Columns];
  };

  TUTTI_HD constexpr std::size_t blocks() const {
    return block_count(size.rows, rows_together) * to.cut.count();
  }

  template <class Lanes>
  TUTTI_HD void operator()(const Lanes& lanes_of, std::size_t number) const {
    const std::size_t line = number / to.cut.count() * rows_together;
    const std::size_t segment = number % to.cut.count();
    columns_together(size.rank, [&](std::size_t first, auto columns) {
      typename Lanes::template of_lanes<sums<columns>> held;
      lanes_of.each([&](std::size_t lane) {
        held[lane] = sum_products<columns>(line, first, segment, lane);
      });
      sums<columns> total;
      for (std::size_t row = 0; row < rows_together; ++row) {
        for (std::size_t k = 0; k < columns; ++k) {
          total.of[row][k] =
              lanes_of.add_up([&](std::size_t lane) { return held[lane].of[row][k]; });
        }
      }
      lanes_of.each([&](std::size_t lane) {
        for (std::size_t row = 0; lane == 0 && row < rows_together && line + row < size.rows;
             ++row) {
          for (std::size_t k = 0; k < columns; ++k) {
            to.keep((first + k) * size.rows + line + row, segment, total.of[row][k]);
          }
        }
      });
    });
  }

 private:
  /// Returns a lane's sums of every sixteenth product in a segment: many at a time, and a few at a
  /// time at its end. Rows past the last are the last one again.
  template <std::size_t Columns>
  TUTTI_HD sums<Columns> sum_products(std::size_t line, std::size_t first, std::size_t segment,
                                      std::size_t lane) const {
    const float* row[rows_together];
    for (std::size_t each = 0; each < rows_together; ++each) {
      const std::size_t number = line + each < size.rows ? line + each : size.rows - 1;
      row[each] = matrix + number * size.columns;
    }
    const float* const thin = right + first * size.columns;
    constexpr std::size_t many = 12;
    constexpr std::size_t few = 4;
    const std::size_t end = to.cut.end(segment);
    std::size_t i = to.cut.begin(segment);
    sums<Columns> sum{};
    for (; i + many * block_lanes <= end; i += many * block_lanes) {
      add_products<many>(
          row, thin, i + lane, [](std::size_t) { return true; }, sum);
    }
    for (; i < end; i += few * block_lanes) {
      add_products<few>(
          row, thin, i + lane, [=](std::size_t at) { return at < end; }, sum);
    }
    return sum;
  }

  /// Adds the products of `Steps` elements of each row, every sixteenth from i on.
  template <std::size_t Steps, std::size_t Columns, class IsThere>
  TUTTI_HD void add_products(const float* const (&row)[rows_together], const float* thin,
                             std::size_t i, const IsThere& is_there, sums<Columns>& sum) const {
    float held[Steps][rows_together];
    for (std::size_t step = 0; step < Steps; ++step) {
      const std::size_t at = i + step * block_lanes;
      for (std::size_t each = 0; each < rows_together; ++each) {
        held[step][each] = is_there(at) ? row[each][at] : 0.0f;
      }
    }
    for (std::size_t step = 0; step < Steps; ++step) {
      const std::size_t at = i + step * block_lanes;
      double element[rows_together];
      for (std::size_t each = 0; each < rows_together; ++each) {
        element[each] = double{held[step][each]};
      }
      for (std::size_t k = 0; k < Columns; ++k) {
        const double factor = is_there(at) ? double{thin[k * size.columns + at]} : 0.0;
        for (std::size_t each = 0; each < rows_together; ++each) {
          add_product(sum.of[each][k], factor, element[each]);
        }
      }
    }
  }
};

/// right = transposed matrix * left. One block of threads adds each segment of as many columns as a
/// warp has lanes, and each of its warps some of the rows. All lanes of a warp need the same
/// elements of the thin matrix, so one lane converts those of a row to doubles, and shares them.
struct transposed_times_thin {
  const float* matrix;
  const float* left;
  low_rank size;
  product_sums to;

  static constexpr unsigned min_blocks_per_sm = 2;
  /// With more rows, the registers would not hold the sums of two blocks.
  static constexpr std::size_t rows_together = 16;

  struct memory {
    double factor[warps][rows_together][most_together];
    double of_warp[warps][most_together][lanes];
  };

  TUTTI_HD constexpr std::size_t strips() const { return block_count(size.columns, lanes); }

  template <class Block>
  TUTTI_HD void operator()(const Block& block, memory& shared) const {
    const auto strips_of_segment = static_cast<std::uint32_t>(strips());
    const std::uint32_t segment = block.number / strips_of_segment;
    const std::size_t column = std::size_t{block.number % strips_of_segment} * lanes;
    columns_together(size.rank, [&](std::size_t first, auto columns) {
      block.each_warp([&](const typename Block::warp& lanes_of, std::uint32_t g) {
        const std::size_t begin = to.cut.begin(segment);
        const segments cut = kernels::detail::of_rows(to.cut.end(segment) - begin);
        sum_products<columns>(lanes_of, column, first, begin + cut.begin(g), begin + cut.end(g),
                              shared.factor[g], shared.of_warp[g]);
      });
      block.each([&](std::uint32_t thread) {
        const std::size_t k = thread / lanes;
        const std::size_t lane = thread % lanes;
        if (k < columns && column + lane < size.columns) {
          double total = 0;
          for (std::size_t g = 0; g < warps; ++g) {  // some warps may have no rows
            total += shared.of_warp[g][k][lane];
          }
          to.keep((first + k) * size.columns + column + lane, segment, total);
        }
      });
    });
  }

 private:
  template <std::size_t Columns>
  struct of_lane {
    float held[rows_together];
    double sum[Columns];
  };

  /// Computes a warp's sums over the rows [row, end).
  template <std::size_t Columns, class Warp>
  TUTTI_HD void sum_products(const Warp& lanes_of, std::size_t column, std::size_t first,
                             std::size_t row, std::size_t end,
                             double (&factor)[rows_together][most_together],
                             double (&sums)[most_together][lanes]) const {
    typename Warp::template of_lanes<of_lane<Columns>> of;
    lanes_of.each([&](std::uint32_t lane) { of[lane] = {}; });
    for (; row + rows_together <= end; row += rows_together) {
      add_products<Columns>(
          lanes_of, column, first, row, [](std::size_t) { return true; }, factor, of);
    }
    if (const std::size_t rest = end - row; rest != 0) {
      add_products<Columns>(
          lanes_of, column, first, row, [=](std::size_t each) { return each < rest; }, factor, of);
    }
    lanes_of.each([&](std::uint32_t lane) {
      for (std::size_t k = 0; k < Columns; ++k) {
        sums[k][lane] = of[lane].sum[k];
      }
    });
  }

  /// Adds the products of `rows_together` rows, from `row` on. Lanes past the last column add the
  /// last column again.
  template <std::size_t Columns, class Warp, class IsThere>
  TUTTI_HD void add_products(const Warp& lanes_of, std::size_t column, std::size_t first,
                             std::size_t row, const IsThere& is_there,
                             double (&factor)[rows_together][most_together],
                             typename Warp::template of_lanes<of_lane<Columns>>& of) const {
    lanes_of.each([&](std::uint32_t lane) {
      const std::size_t its = column + lane < size.columns ? column + lane : size.columns - 1;
      const float* const from = matrix + row * size.columns + its;
      for (std::size_t each = 0; each < rows_together; ++each) {
        of[lane].held[each] = is_there(each) ? from[each * size.columns] : 0.0f;
      }
      if (lane < rows_together) {
        for (std::size_t k = 0; k < Columns; ++k) {
          factor[lane][k] =
              is_there(lane) ? double{left[(first + k) * size.rows + row + lane]} : 0.0;
        }
      }
    });
    lanes_of.each([&](std::uint32_t lane) {
      for (std::size_t each = 0; each < rows_together; ++each) {
        const double element = of[lane].held[each];
        for (std::size_t k = 0; k < Columns; ++k) {
          add_product(of[lane].sum[k], factor[each][k], element);
        }
      }
    });
  }
};

/// Makes columns orthonormal, on one block of threads. Sixteen of its threads handle each segment
/// of a column.
struct orthonormalise {
  float* columns;
  std::size_t rows;
  std::size_t count;
  segments cut;

  static constexpr unsigned min_blocks_per_sm = 1;
  static constexpr std::uint32_t most_segments = threads / block_lanes;

  struct memory {
    double of_thread[threads];
    double of_segment[most_segments];
    double total;
  };

  template <class Block>
  TUTTI_HD void operator()(const Block& block, memory& shared) const {
    for (std::size_t k = 0; k < count; ++k) {
      float* const column = columns + k * rows;
      const double before = std::sqrt(dot(block, shared, column, column));
      for (std::size_t other = 0; other < 2 * k; ++other) {  // all columns before, twice
        const float* const unit = columns + other % k * rows;
        const auto share = static_cast<float>(dot(block, shared, unit, column));
        each_element(block, [&](std::size_t i) {
          column[i] = static_cast<float>(double{column[i]} - double{share} * double{unit[i]});
        });
      }
      const double length = std::sqrt(dot(block, shared, column, column));
      const bool nothing = kernels::detail::vanished(length, before);
      each_element(block, [&](std::size_t i) {
        column[i] = nothing ? 0.0f : static_cast<float>(double{column[i]} / length);
      });
    }
  }

 private:
  /// Calls `f(i)` for the elements of a column that a thread handles.
  template <class F>
  TUTTI_HD void elements_of(std::uint32_t thread, const F& f) const {
    const std::size_t segment = thread / block_lanes;
    const std::size_t end = segment < cut.count() ? cut.end(segment) : 0;
    for (std::size_t i = cut.begin(segment) + thread % block_lanes; i < end; i += block_lanes) {
      f(i);
    }
  }
  template <class Block, class F>
  TUTTI_HD void each_element(const Block& block, const F& f) const {
    block.each([&](std::uint32_t thread) { elements_of(thread, f); });
  }

  template <class Block>
  TUTTI_HD double dot(const Block& block, memory& shared, const float* a, const float* b) const {
    block.each([&](std::uint32_t thread) {
      double sum = 0;
      elements_of(thread, [&](std::size_t i) { sum += double{a[i]} * double{b[i]}; });
      shared.of_thread[thread] = sum;
    });
    block.each([&](std::uint32_t thread) {
      if (thread < cut.count()) {
        double sum = 0;
        for (std::size_t lane = 0; lane < block_lanes; ++lane) {
          sum += shared.of_thread[thread * block_lanes + lane];
        }
        shared.of_segment[thread] = sum;
      }
    });
    block.each([&](std::uint32_t thread) {
      if (thread == 0) {
        shared.total = 0;
        for (std::size_t segment = 0; segment < cut.count(); ++segment) {
          shared.total += shared.of_segment[segment];
        }
      }
    });
    return shared.total;
  }
};

/// Fills a column with random numbers if it is all 0. One block of threads handles each column.
struct fill_empty_column {
  float* columns;
  std::size_t rows;
  counted_random random;

  static constexpr unsigned min_blocks_per_sm = 1;

  struct memory {
    std::uint32_t others;  // threads that found an element other than 0
  };

  template <class Block>
  TUTTI_HD void operator()(const Block& block, memory& shared) const {
    float* const column = columns + block.number * rows;
    block.each([&](std::uint32_t thread) {
      if (thread == 0) {
        shared.others = 0;
      }
    });
    block.each([&](std::uint32_t thread) {
      std::uint32_t others = 0;
      for (std::size_t i = thread; i < rows; i += threads) {
        others += column[i] == 0 ? 0 : 1;
      }
      if (others != 0) {
        add_atomically(&shared.others, 1);
      }
    });
    if (shared.others == 0) {
      const counted_random its = random.stream(block.number);
      block.each([&](std::uint32_t thread) {
        for (std::size_t i = thread; i < rows; i += threads) {
          column[i] = kernels::detail::random_at(its, i);
        }
      });
    }
  }
};

/// Expands packs of neighbouring elements, which may lie in several rows.
struct expand_and_subtract {
  const float* left;
  const float* right;
  low_rank size;
  float average;
  int ranks;
  float* product;
  float* rest;

  template <int Width>
  TUTTI_HD void pack(std::size_t number) const {
    using values = kernels::detail::pack_of<float, Width>;
    const float share = 1.0f / static_cast<float>(ranks);
    std::size_t line = number * Width / size.columns;
    std::size_t column = number * Width % size.columns;
    values made;
    values left_over = reinterpret_cast<const values*>(rest)[number];
    for (int lane = 0; lane < Width; ++lane) {
      float sum = 0;
      for (std::size_t k = 0; k < size.rank; ++k) {
        sum += element::product(left[k * size.rows + line], right[k * size.columns + column]);
      }
      made.value[lane] = sum * average;
      left_over.value[lane] -= element::product(sum, share);
      if (++column == size.columns) {
        column = 0;
        ++line;
      }
    }
    reinterpret_cast<values*>(product)[number] = made;
    reinterpret_cast<values*>(rest)[number] = left_over;
  }
};

}  // namespace tutti::kernels::steps
