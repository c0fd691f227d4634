// A host's products with thin matrices: the same bits for vectors of all kinds, and those of plain
// loops that add in the same order.
#include "tutti/kernels/low_rank.hpp"

#include <algorithm>
#include <cstddef>
#include <gtest/gtest.h>
#include <iterator>
#include <span>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "kernels/low_rank_shapes.hpp"
#include "kernels/values.hpp"
#include "tutti/kernels/widest.hpp"

namespace tutti {
namespace {

using kernels::low_rank;

/// A matrix, and thin matrices for its two sides.
struct factors {
  std::vector<float> matrix;
  std::vector<float> left;
  std::vector<float> right;
};

/// Returns the matrix times `right` and its transpose times `left`, each sum by itself in plain
/// loops.
std::vector<float> one_by_one(const factors& of, const low_rank& size) {
  using namespace kernels::detail;
  std::vector<float> made(size.rows * size.rank);
  const segments of_columns = of_a_product(made.size(), size.columns);
  for (std::size_t i = 0; i < made.size(); ++i) {
    made[i] = static_cast<float>(dot(of.matrix.data() + i % size.rows * size.columns,
                                     of.right.data() + i / size.rows * size.columns, of_columns));
  }
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
          sum += double{of.matrix[row * size.columns + i % size.columns]} *
                 double{of.left[i / size.columns * size.rows + row]};
        }
        of_segment += sum;
      }
      total += of_segment;
    }
    made.push_back(static_cast<float>(total));
  }
  return made;
}

/// Returns these two products by the kernels.
template <std::size_t Lanes>
std::vector<float> made_by(const factors& of, const low_rank& size) {
  using namespace kernels::detail;
  std::vector<float> made(size.rows * size.rank);
  std::vector<float> back(size.columns * size.rank);
  matrix_times_thin<Lanes>(elements_of{of.matrix.data()}, of.right.data(), size, made.data());
  transposed_times_thin<Lanes>(of.matrix.data(), of.left.data(), size, back.data());
  made.insert(made.end(), back.begin(), back.end());
  return made;
}

/// Returns the product of the factors by the kernels.
std::vector<float> product_of(const factors& of, const low_rank& size) {
  std::vector<float> product(of.matrix.size());
  kernels::detail::each_block_of_product(
      of.left.data(), of.right.data(), size,
      [&](std::size_t row, std::size_t column, const auto& sums) {
        for (std::size_t each = 0; each < std::size(sums); ++each) {
          std::ranges::copy(sums[each], product.data() + (row + each) * size.columns + column);
        }
      });
  return product;
}

void expect_one_value(const factors& of, const low_rank& size) {
  const auto wanted = one_by_one(of, size);
  EXPECT_TRUE(same_bits(made_by<2>(of, size), wanted)) << named(size);
  EXPECT_TRUE(same_bits(made_by<4>(of, size), wanted)) << named(size);
  EXPECT_TRUE(same_bits(made_by<8>(of, size), wanted)) << named(size);
  std::vector<float> vectorised;
  const auto make = [&](auto lanes) { vectorised = made_by<lanes>(of, size); };
  kernels::widest_of_exact_products(make);
  EXPECT_TRUE(same_bits(vectorised, wanted)) << named(size);
#if defined(__x86_64__) && defined(__OPTIMIZE__) && !defined(__clang__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    kernels::detail::with_avx2_and_fma(make);
    EXPECT_TRUE(same_bits(vectorised, wanted)) << named(size);
  }
#endif
  const auto product = product_of(of, size);
  kernels::widest([&] { vectorised = product_of(of, size); });
  EXPECT_TRUE(same_bits(vectorised, product)) << named(size);
}

/// The result does not depend on how products are added and for which vectors the loops are
/// compiled. Sums that cancel would reveal another order.
TEST(low_rank, a_product_added_in_one_instruction_is_the_one_added_in_two) {
  for (const low_rank& size : low_rank_shapes) {
    const factors of{normal_values(size.rows * size.columns, 58),
                     normal_values(size.rows * size.rank, 59),
                     normal_values(size.columns * size.rank, 60)};
    expect_one_value(of, size);
    expect_one_value(
        {mirrored(of.matrix, size.columns, -1), of.left, mirrored(of.right, size.columns, 1)},
        size);
    expect_one_value(
        {with_opposite_rows(of.matrix, size), mirrored(of.left, size.rows, 1), of.right}, size);
  }
}

/// Floats behind which a page lies that nobody may read. A sanitizer does not see what the compiler
/// itself reads too far.
class before_a_guard_page {
 public:
  explicit before_a_guard_page(std::size_t elements) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t bytes = (elements * sizeof(float) + page - 1) / page * page;
    size_ = bytes + page;
    memory_ = static_cast<std::byte*>(
        ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ::mprotect(memory_ + bytes, page, PROT_NONE);
    all_ = {reinterpret_cast<float*>(memory_ + bytes) - elements, elements};
  }
  before_a_guard_page(const before_a_guard_page&) = delete;
  before_a_guard_page& operator=(const before_a_guard_page&) = delete;
  ~before_a_guard_page() { ::munmap(memory_, size_); }

  std::span<float> all() const { return all_; }

 private:
  std::byte* memory_;
  std::size_t size_;
  std::span<float> all_;
};

TEST(low_rank, products_read_nothing_behind_their_matrices) {
  inline_queue queue;
  for (const low_rank& size : {low_rank{30, 180, 5}, {21, 12, 4}, {8, 9, 1}, {3, 530, 3}}) {
    const before_a_guard_page matrix(size.rows * size.columns);
    const before_a_guard_page rest(size.rows * size.columns);
    const before_a_guard_page left(size.rows * size.rank);
    const before_a_guard_page right(size.columns * size.rank);
    matrix_times_thin(queue, matrix.all().data(), right.all().data(), size, left.all().data());
    add_and_multiply(queue, matrix.all(), rest.all(), right.all().data(), size, left.all().data());
    transposed_times_thin(queue, matrix.all().data(), left.all().data(), size, right.all().data());
    expand_and_subtract(queue, left.all().data(), right.all().data(), size, 0.5f, 2, matrix.all(),
                        rest.all());
  }
}

}  // namespace
}  // namespace tutti
