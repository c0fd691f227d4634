#pragma once

#include <cstddef>
#include <span>

#include "tutti/base/cuda/stream.hpp"
#include "tutti/kernels/cuda/arithmetic.cuh"
#include "tutti/kernels/cuda/each.cuh"
#include "tutti/kernels/low_rank.hpp"
#include "tutti/kernels/low_rank_steps.hpp"

// The definitions of what low_rank.hpp declares for a cuda::stream.
namespace tutti::kernels {

namespace device {

static_assert(detail::of_a_column(~std::size_t{0}).count() <= steps::orthonormalise::most_segments);

/// Returns where `sums` sums of `terms` terms go, with room for the segments of sums that are cut.
inline steps::product_sums sums_of(cuda::stream& queue, std::size_t sums, std::size_t terms,
                                   float* out) {
  auto* const partial = workspace(queue, detail::most_partial_sums * sizeof(double));
  return {detail::of_a_product(sums, terms), sums, reinterpret_cast<double*>(partial), out};
}

inline void add_cut(cuda::stream& queue, const steps::product_sums& of) {
  if (of.cut.count() > 1) {
    for_each(queue, of.sums, steps::add_segments{of});
  }
}

}  // namespace device

[[gnu::used]] inline void matrix_times_thin(cuda::stream& queue, const float* matrix,
                                            const float* right, const low_rank& size, float* left) {
  const auto to = device::sums_of(queue, size.rows * size.rank, size.columns, left);
  const steps::matrix_times_thin step{matrix, right, size, to};
  constexpr unsigned few = 64;  // threads in a block, as a lane keeps dozens of values in registers
  device::for_each_block<few>(queue, step.blocks(), step);
  device::add_cut(queue, to);
}

/// Reads the matrix twice.
[[gnu::used]] inline void add_and_multiply(cuda::stream& queue, std::span<float> matrix,
                                           std::span<const float> addend, const float* right,
                                           const low_rank& size, float* left) {
  add(queue, matrix, addend);
  matrix_times_thin(queue, matrix.data(), right, size, left);
}

[[gnu::used]] inline void transposed_times_thin(cuda::stream& queue, const float* matrix,
                                                const float* left, const low_rank& size,
                                                float* right) {
  const auto to = device::sums_of(queue, size.columns * size.rank, size.rows, right);
  const steps::transposed_times_thin step{matrix, left, size, to};
  device::on_blocks(queue, step.strips() * to.cut.count(), step);
  device::add_cut(queue, to);
}

[[gnu::used]] inline void orthonormalise(cuda::stream& queue, float* columns, std::size_t rows,
                                         std::size_t count) {
  device::on_blocks(queue, count == 0 ? 0 : 1,
                    steps::orthonormalise{columns, rows, count, detail::of_a_column(rows)});
}

[[gnu::used]] inline void expand_and_subtract(cuda::stream& queue, const float* left,
                                              const float* right, const low_rank& size,
                                              float average, int ranks, std::span<float> product,
                                              std::span<float> rest) {
  device::each_pack(
      queue, product.size(),
      steps::expand_and_subtract{left, right, size, average, ranks, product.data(), rest.data()},
      product.data(), rest.data());
}

[[gnu::used]] inline void fill_empty_columns(cuda::stream& queue, float* columns, std::size_t rows,
                                             std::size_t count, const counted_random& random) {
  device::on_blocks(queue, count, steps::fill_empty_column{columns, rows, random});
}

}  // namespace tutti::kernels
