#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "tutti/base/host_device.hpp"
#include "tutti/kernels/block_of_threads.hpp"
#include "tutti/kernels/blocks.hpp"
#include "tutti/kernels/counted_random.hpp"
#include "tutti/kernels/elements.hpp"
#include "tutti/kernels/low_rank.hpp"

/// How a device multiplies with thin matrices: its sums are the host's, in the host's order, and
/// one read of the matrix is enough for four columns of a thin one. Neighbouring threads read
/// neighbouring elements.
namespace tutti::kernels::steps {

using kernels::detail::segments;

/// Columns whose sums a thread keeps.
inline constexpr std::size_t together = 4;

struct some_sums {
  double of[together];
};

/// Sums of the products of matrix[i * stride] with thin[k * length + i] for every `Every`-th i of
/// [begin, end), for each of up to `together` columns k.
template <std::size_t Every>
TUTTI_HD some_sums sum_products(const float* matrix, std::size_t stride, const float* thin,
                                std::size_t length, std::size_t columns, std::size_t begin,
                                std::size_t end) {
  constexpr std::size_t ahead = 8;  // loads on their way at once, for memory is far away
  some_sums sums{};
  for (std::size_t first = begin; first < end; first += ahead * Every) {
    float held[ahead];
    for (std::size_t a = 0; a < ahead; ++a) {
      const std::size_t i = first + a * Every;
      held[a] = i < end ? matrix[i * stride] : 0.0f;
    }
    for (std::size_t a = 0; a < ahead; ++a) {
      const std::size_t i = first + a * Every;
      for (std::size_t k = 0; k < together; ++k) {
        if (i < end && k < columns) {
          sums.of[k] += double{thin[k * length + i]} * double{held[a]};
        }
      }
    }
  }
  return sums;
}

/// Where so many sums go: into `out`, or their segments into `partial`, for add_segments.
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

/// For each sum that is cut.
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

/// Sixteen lanes for each segment of a row.
struct matrix_times_thin {
  const float* matrix;
  const float* right;
  low_rank size;
  product_sums to;

  template <class Lanes>
  TUTTI_HD void operator()(const Lanes& lanes_of, std::size_t number) const {
    const std::size_t line = number / to.cut.count();
    const std::size_t segment = number % to.cut.count();
    typename Lanes::template of_lanes<some_sums> held;
    for (std::size_t first = 0; first < size.rank; first += together) {
      lanes_of.each([&](std::size_t lane) {
        held[lane] = sum_products<block_lanes>(
            matrix + line * size.columns, 1, right + first * size.columns, size.columns,
            size.rank - first, to.cut.begin(segment) + lane, to.cut.end(segment));
      });
      for (std::size_t k = 0; k < together; ++k) {
        if (first + k < size.rank) {
          const double total = lanes_of.add_up([&](std::size_t lane) { return held[lane].of[k]; });
          lanes_of.each([&](std::size_t lane) {
            if (lane == 0) {
              to.keep((first + k) * size.rows + line, segment, total);
            }
          });
        }
      }
    }
  }
};

/// A block for each segment of as many columns as a warp has lanes: its warps have some rows each.
struct transposed_times_thin {
  const float* matrix;
  const float* left;
  low_rank size;
  product_sums to;

  static constexpr unsigned min_blocks_per_sm = 2;

  struct memory {
    double of_warp[warps][together][lanes];
  };

  TUTTI_HD constexpr std::size_t strips() const { return block_count(size.columns, lanes); }

  template <class Block>
  TUTTI_HD void operator()(const Block& block, memory& shared) const {
    const std::size_t segment = block.number / strips();
    const std::size_t begin = to.cut.begin(segment);
    const segments cut = kernels::detail::of_rows(to.cut.end(segment) - begin);
    const std::size_t column = block.number % strips() * lanes;
    for (std::size_t first = 0; first < size.rank; first += together) {
      block.each_warp([&](const typename Block::warp& lanes_of, std::uint32_t g) {
        lanes_of.each([&](std::uint32_t lane) {
          if (g < cut.count() && column + lane < size.columns) {
            const some_sums sums = sum_products<1>(
                matrix + column + lane, size.columns, left + first * size.rows, size.rows,
                size.rank - first, begin + cut.begin(g), begin + cut.end(g));
            for (std::size_t k = 0; k < together; ++k) {
              shared.of_warp[g][k][lane] = sums.of[k];
            }
          }
        });
      });
      block.each([&](std::uint32_t thread) {
        const std::size_t k = thread / lanes;
        const std::size_t lane = thread % lanes;
        if (k < together && first + k < size.rank && column + lane < size.columns) {
          double total = 0;
          for (std::size_t g = 0; g < cut.count(); ++g) {
            total += shared.of_warp[g][k][lane];
          }
          to.keep((first + k) * size.columns + column + lane, segment, total);
        }
      });
    }
  }
};

/// One block, of which sixteen threads have a segment's elements for themselves.
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
      for (std::size_t other = 0; other < 2 * k; ++other) {  // all of them, twice
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
  /// Calls `f(i)` for what a thread has of a column.
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

/// A block for each column.
struct fill_empty_column {
  float* columns;
  std::size_t rows;
  counted_random random;

  static constexpr unsigned min_blocks_per_sm = 1;

  struct memory {
    std::uint32_t others;  // not 0
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

/// Packs of neighbours, which may lie in several rows.
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
        sum += left[k * size.rows + line] * right[k * size.columns + column];
      }
      made.value[lane] = sum * average;
      left_over.value[lane] -= sum * share;
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
