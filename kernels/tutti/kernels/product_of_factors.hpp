#pragma once

#include <cstddef>
#include <cstring>

#include "tutti/kernels/blocks.hpp"
#include "tutti/kernels/thin_products.hpp"

// The product of two thin matrices, block by block, as a host computes it.
namespace tutti::kernels::detail {

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
      // Copied, since g++ 12 otherwise loads the factors of the next k, which do not exist after
      // the last one.
      float factors[Rows];
      std::memcpy(factors, left + k * size.rows + row, sizeof factors);
      for (std::size_t each = 0; each < Rows; ++each) {
        for (std::size_t i = 0; i < Columns; ++i) {
          sums[each][i] += factors[each] * right[k * size.columns + begin + i];
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
/// page (see `add_pieces`). Prefetches the block that lies `next` elements further on.
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

}  // namespace tutti::kernels::detail
