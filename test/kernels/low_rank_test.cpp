// Products with thin matrices as a host makes them: the same bits for all vectors, and those of
// plain loops that add in the same order.
#include "tutti/kernels/low_rank.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <gtest/gtest.h>
#include <iterator>
#include <vector>

#include "kernels/low_rank_shapes.hpp"
#include "kernels/values.hpp"
#include "tutti/kernels/widest.hpp"

namespace tutti {
namespace {

using kernels::low_rank;

/// The matrix times the thin one and then the transposed times that, each sum for itself and by
/// plain loops.
std::vector<float> one_by_one(const std::vector<float>& matrix, const std::vector<float>& right,
                              const low_rank& size) {
  using namespace kernels::detail;
  std::vector<float> made(size.rows * size.rank);
  const segments of_columns = of_a_product(size.rows * size.rank, size.columns);
  for (std::size_t i = 0; i < made.size(); ++i) {
    made[i] = static_cast<float>(dot(matrix.data() + i % size.rows * size.columns,
                                     right.data() + i / size.rows * size.columns, of_columns));
  }
  const std::vector<float> left = made;
  const segments outer = of_a_product(size.columns * size.rank, size.rows);
  for (std::size_t i = 0; i < size.columns * size.rank; ++i) {
    double total = 0;
    for (std::size_t segment = 0; segment < outer.count(); ++segment) {
      const std::size_t begin = outer.begin(segment);
      const segments inner = of_rows(outer.end(segment) - begin);
      double of_segment = 0;
      for (std::size_t part = 0; part < inner.count(); ++part) {
        double sum = 0;
        for (std::size_t row = begin + inner.begin(part); row < begin + inner.end(part); ++row) {
          sum += double{matrix[row * size.columns + i % size.columns]} *
                 double{left[i / size.columns * size.rows + row]};
        }
        of_segment += sum;
      }
      total += of_segment;
    }
    made.push_back(static_cast<float>(total));
  }
  return made;
}

/// However products are added, and for whichever vectors the loops are compiled.
TEST(low_rank, a_product_added_in_one_instruction_is_the_one_added_in_two) {
  const auto apart = [](double a, double b, double c) { return a * b + c; };
  const auto at_once = [](double a, double b, double c) { return std::fma(a, b, c); };
  for (const low_rank& size : low_rank_shapes) {
    const auto matrix = normal_values(size.rows * size.columns, 58);
    const auto right = normal_values(size.columns * size.rank, 59);
    const auto made_by = [&](const auto& multiply_add) {
      std::vector<float> left(size.rows * size.rank);
      std::vector<float> back(size.columns * size.rank);
      std::vector<float> product(matrix.size());
      kernels::detail::matrix_times_thin(multiply_add, kernels::detail::elements_of{matrix.data()},
                                         right.data(), size, left.data());
      kernels::detail::transposed_times_thin(multiply_add, matrix.data(), left.data(), size,
                                             back.data());
      kernels::detail::each_block_of_product(
          left.data(), back.data(), size,
          [&](std::size_t row, std::size_t column, const auto& sums) {
            for (std::size_t each = 0; each < std::size(sums); ++each) {
              std::ranges::copy(sums[each], product.data() + (row + each) * size.columns + column);
            }
          });
      left.insert(left.end(), back.begin(), back.end());
      left.insert(left.end(), product.begin(), product.end());
      return left;
    };
    const auto wanted = made_by(apart);
    const auto plain = one_by_one(matrix, right, size);
    EXPECT_TRUE(same_bits({wanted.begin(), wanted.begin() + std::ssize(plain)}, plain))
        << named(size);
    EXPECT_TRUE(same_bits(made_by(at_once), wanted)) << named(size);
    std::vector<float> vectorised;
    const auto make = [&](const auto& multiply_add) { vectorised = made_by(multiply_add); };
    kernels::widest_of_exact_products(make);
    EXPECT_TRUE(same_bits(vectorised, wanted)) << named(size);
#if defined(__x86_64__) && defined(__OPTIMIZE__) && !defined(__clang__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
      kernels::detail::with_avx2_and_fma(make);
      EXPECT_TRUE(same_bits(vectorised, wanted)) << named(size);
    }
#endif
  }
}

}  // namespace
}  // namespace tutti
