// A device's products with thin matrices, run on the host. The bits are those of the host's
// kernels, which are compared with plain sums.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "kernels/low_rank_shapes.hpp"
#include "kernels/values.hpp"
#include "tutti/kernels/low_rank.hpp"
#include "tutti/kernels/low_rank_steps.hpp"

namespace tutti {
namespace {

namespace steps = kernels::steps;
using kernels::low_rank;
using kernels::detail::segments;

/// Runs blocks in reverse order, with memory that has not been cleared.
template <class Step>
void on_blocks(std::size_t blocks, const Step& step) {
  const auto shared = std::make_unique<typename Step::memory>();
  for (std::size_t number = blocks; number-- > 0;) {
    std::memset(static_cast<void*>(shared.get()), 0xFF, sizeof *shared);
    step(steps::host_block{static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(blocks)},
         *shared);
  }
}

/// The arguments of a device's sums, with room for their segments.
class device_sums {
 public:
  device_sums(std::size_t sums, std::size_t terms)
      : out(sums + 1, 99.0f),
        partial_(kernels::detail::most_partial_sums, std::nan("")),
        to{kernels::detail::of_a_product(sums, terms), sums, partial_.data(), out.data()} {}

  void finish() {
    for (std::size_t sum = 0; sum < to.sums && to.cut.count() > 1; ++sum) {
      steps::add_segments{to}(sum);
    }
    EXPECT_EQ(out.back(), 99) << "wrote past the sums";
    out.pop_back();
  }

  std::vector<float> out;

 private:
  std::vector<double> partial_;

 public:
  steps::product_sums to;
};

/// Expects `found` to be the sum of `term(i)`, added in double and rounded to a float.
template <class Term>
void expect_sum(float found, std::size_t n, const Term& term, const low_rank& size) {
  long double exact = 0;
  long double magnitudes = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const long double each = term(i);
    exact += each;
    magnitudes += std::fabs(each);
  }
  const long double bound =
      static_cast<long double>(n) * 0x1p-53L * magnitudes + std::fabs(exact) * 0x1.0001p-24L;
  ASSERT_LE(std::fabs(static_cast<long double>(found) - exact), bound) << named(size);
}

TEST(segments, hold_every_term_once_and_in_order) {
  for (const std::size_t terms : {0UL, 1UL, 15UL, 17UL, 1023UL, 2048UL, 2049UL, 99'999UL}) {
    for (const std::size_t least : {1UL, 64UL, 1024UL}) {
      for (const std::size_t most : {0UL, 1UL, 7UL, 32UL}) {
        const segments cut(terms, least, most);
        ASSERT_GE(cut.count(), 1u);
        ASSERT_LE(cut.count(), std::max<std::size_t>(most, 1));
        std::size_t next = 0;
        for (std::size_t i = 0; i < cut.count(); ++i) {
          ASSERT_EQ(cut.begin(i), next);
          ASSERT_GE(cut.end(i), next);
          next = cut.end(i);
        }
        ASSERT_EQ(next, terms) << least << " or more, at most " << most;
      }
    }
  }
  EXPECT_EQ(kernels::detail::of_a_product(9, 5000).count(), 4u) << "some shapes are cut";
  EXPECT_EQ(kernels::detail::of_rows(64).count(), 2u);
  EXPECT_EQ(kernels::detail::of_rows(5000).count(), kernels::steps::warps);
  EXPECT_EQ(kernels::detail::of_a_product(2 * 4096, 1 << 20).count(), 1u);
  EXPECT_LE(kernels::detail::of_a_column(~std::size_t{0} / 2).count(),
            steps::orthonormalise::most_segments);
}

void expect_times_thin(const std::vector<float>& matrix, const std::vector<float>& right,
                       const low_rank& size) {
  inline_queue queue;
  std::vector<float> here(size.rows * size.rank, 7);
  kernels::matrix_times_thin(queue, matrix.data(), right.data(), size, here.data());
  device_sums there(here.size(), size.columns);
  const steps::matrix_times_thin step{matrix.data(), right.data(), size, there.to};
  for (std::size_t number = step.blocks(); number-- > 0;) {
    step(kernels::host_lanes{}, number);
  }
  there.finish();
  EXPECT_TRUE(same_bits(here, there.out)) << named(size);
  for (std::size_t i = 0; i < here.size(); ++i) {
    const float* const row = matrix.data() + i % size.rows * size.columns;
    const float* const column = right.data() + i / size.rows * size.columns;
    expect_sum(
        here[i], size.columns,
        [=](std::size_t j) { return static_cast<long double>(row[j]) * column[j]; }, size);
  }
}

TEST(device_low_rank, the_matrix_times_a_thin_one_is_the_hosts) {
  for (const low_rank& size : low_rank_shapes) {
    const auto matrix = normal_values(size.rows * size.columns, 50);
    const auto right = normal_values(size.columns * size.rank, 51);
    expect_times_thin(matrix, right, size);
    expect_times_thin(mirrored(matrix, size.columns, -1), mirrored(right, size.columns, 1), size);
  }
}

void expect_transposed_times_thin(const std::vector<float>& matrix, const std::vector<float>& left,
                                  const low_rank& size) {
  inline_queue queue;
  std::vector<float> here(size.columns * size.rank, 7);
  kernels::transposed_times_thin(queue, matrix.data(), left.data(), size, here.data());
  device_sums there(here.size(), size.rows);
  const steps::transposed_times_thin step{matrix.data(), left.data(), size, there.to};
  on_blocks(step.strips() * there.to.cut.count(), step);
  there.finish();
  EXPECT_TRUE(same_bits(here, there.out)) << named(size);
  for (std::size_t i = 0; i < here.size(); ++i) {
    const float* const from = matrix.data() + i % size.columns;
    const float* const column = left.data() + i / size.columns * size.rows;
    expect_sum(
        here[i], size.rows,
        [=](std::size_t row) {
          return static_cast<long double>(from[row * size.columns]) * column[row];
        },
        size);
  }
}

TEST(device_low_rank, the_transposed_times_a_thin_one_is_the_hosts) {
  for (const low_rank& size : low_rank_shapes) {
    const auto matrix = normal_values(size.rows * size.columns, 52);
    const auto left = normal_values(size.rows * size.rank, 53);
    expect_transposed_times_thin(matrix, left, size);
    expect_transposed_times_thin(with_opposite_rows(matrix, size), mirrored(left, size.rows, 1),
                                 size);
  }
}

/// Makes columns orthonormal on both sides. Column `nothing` is in the span of the others.
void expect_orthonormal(std::vector<float> here, std::size_t rows, std::size_t nothing) {
  const std::size_t count = here.size() / rows;
  auto there = here;
  inline_queue queue;
  kernels::orthonormalise(queue, here.data(), rows, count);
  on_blocks(1,
            steps::orthonormalise{there.data(), rows, count, kernels::detail::of_a_column(rows)});
  EXPECT_TRUE(same_bits(here, there)) << count << " columns of " << rows;
  for (std::size_t a = 0; a < count && count <= rows; ++a) {
    for (std::size_t b = 0; b <= a; ++b) {
      long double dot = 0;
      for (std::size_t i = 0; i < rows; ++i) {
        dot += static_cast<long double>(here[a * rows + i]) * here[b * rows + i];
      }
      // A unit vector's elements are floats, so its length has an error of 2^-24. An angle has that
      // error for each of the few columns after which an element was rounded.
      EXPECT_NEAR(static_cast<double>(dot), a == b && a != nothing ? 1 : 0, 8 * 0x1p-24)
          << a << " and " << b << " of " << count << " columns of " << rows;
    }
  }
}

TEST(device_low_rank, orthonormal_columns_are_the_hosts) {
  constexpr std::size_t none = 99;
  for (const std::size_t rows : {1UL, 2UL, 16UL, 63UL, 64UL, 129UL, 1000UL, 2048UL, 5003UL}) {
    for (const std::size_t count : {1UL, 2UL, 5UL}) {
      expect_orthonormal(normal_values(rows * count, 54), rows, none);
    }
    auto dependent = normal_values(rows * 5, 55);
    for (std::size_t i = 0; i < rows; ++i) {
      dependent[3 * rows + i] = 3 * dependent[i];
    }
    expect_orthonormal(dependent, rows, 3);
    // A component of which only rounding remains, visible where the column has little else.
    auto cancelling = mirrored(normal_values(rows, 56), rows, 1);
    auto opposite = normal_values(rows, 57);
    for (std::size_t i = 0; i < rows; i += 5) {
      opposite[i] = 1e-25f;
    }
    opposite = mirrored(opposite, rows, -1);
    cancelling.insert(cancelling.end(), opposite.begin(), opposite.end());
    if (rows > 10) {
      expect_orthonormal(cancelling, rows, none);
    }
  }
}

template <int Width>
void expand_on_device(const steps::expand_and_subtract& step, std::size_t n) {
  for (std::size_t number = 0; number < n / Width; ++number) {
    step.pack<Width>(number);
  }
}

TEST(device_low_rank, the_product_of_the_factors_is_the_hosts) {
  inline_queue queue;
  for (const low_rank& size : low_rank_shapes) {
    const std::size_t n = size.rows * size.columns;
    const auto left = normal_values(size.rows * size.rank, 55);
    const auto right = normal_values(size.columns * size.rank, 56);
    const auto before = normal_values(n, 57);
    const float average = 1.0f / 6;
    const int ranks = 3;
    std::vector<float> mean_here(n, 7);
    auto rest_here = before;
    kernels::expand_and_subtract(queue, left.data(), right.data(), size, average, ranks, mean_here,
                                 rest_here);
    for (const int width : {1, 4}) {
      std::vector<float> mean_there(n + 1, 8);
      auto rest_there = before;
      const steps::expand_and_subtract step{
          left.data(), right.data(), size, average, ranks, mean_there.data(), rest_there.data()};
      if (width == 1) {
        expand_on_device<1>(step, n);
      } else if (n % 4 == 0) {
        expand_on_device<4>(step, n);
      } else {
        continue;
      }
      EXPECT_EQ(mean_there.back(), 8) << "wrote past the product";
      mean_there.pop_back();
      EXPECT_TRUE(same_bits(mean_here, mean_there)) << named(size) << ", " << width << " together";
      EXPECT_TRUE(same_bits(rest_here, rest_there)) << named(size) << ", " << width << " together";
    }
    for (std::size_t i = 0; i < n; ++i) {
      float sum = 0;
      for (std::size_t k = 0; k < size.rank; ++k) {
        sum += left[k * size.rows + i / size.columns] * right[k * size.columns + i % size.columns];
      }
      ASSERT_EQ(mean_here[i], sum * average) << named(size);
      ASSERT_EQ(rest_here[i], before[i] - sum * (1.0f / 3)) << named(size);
    }
  }
}

TEST(device_low_rank, what_is_added_on_the_way_is_what_is_multiplied) {
  inline_queue queue;
  for (const low_rank& size : low_rank_shapes) {
    auto apart = normal_values(size.rows * size.columns, 58);
    auto on_the_way = apart;
    const auto addend = normal_values(apart.size(), 59);
    const auto right = normal_values(size.columns * size.rank, 60);
    std::vector<float> expected(size.rows * size.rank, 7);
    std::vector<float> found(expected.size(), 8);
    std::ranges::transform(apart, addend, apart.begin(), std::plus());
    kernels::matrix_times_thin(queue, apart.data(), right.data(), size, expected.data());
    kernels::add_and_multiply(queue, on_the_way, addend, right.data(), size, found.data());
    EXPECT_TRUE(same_bits(on_the_way, apart)) << named(size);
    EXPECT_TRUE(same_bits(found, expected)) << named(size);
  }
}

TEST(device_low_rank, columns_of_zeros_begin_again_as_the_hosts_do) {
  inline_queue queue;
  const kernels::counted_random random(9);
  for (const std::size_t rows : {1UL, 511UL, 512UL, 513UL, 2000UL}) {
    std::vector<float> here(5 * rows);
    here[2 * rows - 1] = 1e-30f;
    for (std::size_t i = 0; i < rows; ++i) {
      here[2 * rows + i] = -0.0f;
    }
    here[3 * rows] = std::numeric_limits<float>::quiet_NaN();
    auto there = here;
    const auto before = here;
    kernels::fill_empty_columns(queue, here.data(), rows, 5, random);
    on_blocks(5, steps::fill_empty_column{there.data(), rows, random});
    EXPECT_TRUE(same_bits(here, there)) << rows;
    for (std::size_t i = 0; i < here.size(); ++i) {
      const std::size_t k = i / rows;
      if (k == 1 || k == 3) {
        EXPECT_EQ(std::memcmp(&here[i], &before[i], sizeof here[i]), 0) << "was not empty";
      } else {
        ASSERT_EQ(here[i], static_cast<float>(2 * random.stream(k).uniform(i % rows) - 1));
      }
    }
  }
}

}  // namespace
}  // namespace tutti
