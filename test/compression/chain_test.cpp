// Tests of `chain`: one compressor selects, and another encodes the selected values.
#include "tutti/compression/chain.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "compression/placed.hpp"
#include "compression/sign_layout.hpp"
#include "tutti/compression/block_int8.hpp"
#include "tutti/compression/dense_below.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/fp16.hpp"
#include "tutti/compression/momentum_correction.hpp"
#include "tutti/compression/natural.hpp"
#include "tutti/compression/qsgd.hpp"
#include "tutti/compression/random_k.hpp"
#include "tutti/compression/scaled_sign.hpp"
#include "tutti/compression/sign.hpp"
#include "tutti/compression/top_k.hpp"

namespace tutti {
namespace {

using compression::chain;
using compression::error_feedback;
using compression::random_k;
using compression::scaled_sign;
using compression::top_k;

template <class T>
std::vector<T> read(const std::vector<std::byte>& payload, std::size_t begin, std::size_t count) {
  std::vector<T> values(count);
  std::ranges::copy(std::span(payload).subspan(begin, count * sizeof(T)),
                    std::as_writable_bytes(std::span(values)).begin());
  return values;
}

/// Returns the indices of the k largest magnitudes, of equal ones the first, in ascending order.
std::vector<std::uint32_t> largest(const std::vector<float>& all, std::size_t k) {
  std::vector<std::uint32_t> order(all.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, [&](std::uint32_t a, std::uint32_t b) {
    return std::fabs(all[a]) > std::fabs(all[b]);
  });
  order.resize(k);
  std::ranges::sort(order);
  return order;
}

/// Sparse ternary compression sends the signs of the k largest elements and the mean of their
/// magnitudes.
TEST(chain, of_a_selection_and_signs_is_sparse_ternary_compression) {
  for (const std::size_t n : awkward_sizes) {
    placed<error_feedback<chain<top_k, scaled_sign>>> codec(n, {.selection = {.density = 0.1}});
    std::vector<float> residual(n);
    for (unsigned step = 0; step < 6; ++step) {
      const auto gradient = gradient_of(n, 70 + step);
      for (std::size_t i = 0; i < n; ++i) {
        residual[i] += gradient[i];
      }
      const std::size_t k = n == 0 ? 0 : std::max<std::size_t>(n / 10, 1);
      const auto indices = largest(residual, k);
      std::vector<float> values;
      double magnitudes = 0;
      for (const std::uint32_t i : indices) {
        values.push_back(residual[i]);
        magnitudes += std::fabs(static_cast<double>(residual[i]));
      }
      const float mean = k == 0 ? 0 : static_cast<float>(magnitudes / static_cast<double>(k));

      const auto payload = codec.encode(gradient);
      ASSERT_FALSE(codec.overran);
      const std::size_t words = (k + 31) / 32;
      ASSERT_EQ(payload.size(), 4 * k + 4 + 4 * words);
      EXPECT_EQ(read<std::uint32_t>(payload, 0, k), indices);
      EXPECT_EQ(read<float>(payload, 4 * k, 1).front(), mean);
      EXPECT_EQ(read<std::uint32_t>(payload, 4 * k + 4, words), published_layout(doubles(values)));

      const auto sent = codec.decode(payload);
      std::vector<float> expected(n);
      for (const std::uint32_t i : indices) {
        expected[i] = residual[i] < 0 ? -mean : mean;
        residual[i] -= expected[i];
      }
      EXPECT_EQ(sent, expected);
      EXPECT_TRUE(std::ranges::equal(codec.row(0), residual)) << "n=" << n << ", step " << step;
    }
  }
}

/// The payload is what the two compressors write one after the other, the second one for the values
/// that the first selects.
template <class Selection, class Code>
void is_the_one_and_then_the_other(const options_of<Selection>& selecting) {
  for (const std::size_t n : awkward_sizes) {
    const auto gradient = gradient_of(n, 80);
    placed<chain<Selection, Code>> both(n, {.selection = selecting});
    const auto payload = both.encode(gradient);
    ASSERT_FALSE(both.overran);

    placed<Selection> first(n, selecting);
    const auto selection = first.encode(gradient);
    const std::size_t k = first.policy.selected(n);
    const std::size_t head = selection.size() - 4 * k;
    placed<Code> second(k);
    const auto code = second.encode(read<float>(selection, head, k));
    std::vector<std::byte> expected(selection.begin(),
                                    selection.begin() + static_cast<std::ptrdiff_t>(head));
    expected.insert(expected.end(), code.begin(), code.end());
    EXPECT_EQ(payload, expected) << n;

    std::vector<std::byte> decoded = selection;
    const auto values = second.decode(code);
    if (k > 0) {
      std::memcpy(decoded.data() + head, values.data(), 4 * k);
    }
    EXPECT_EQ(both.decode(payload), first.decode(decoded)) << n;
  }
}
TEST(chain, is_the_one_and_then_the_other) {
  using compression::block_int8;
  is_the_one_and_then_the_other<top_k, compression::fp16>({.density = 0.1});
  is_the_one_and_then_the_other<top_k, block_int8>({.density = 0.3});
  is_the_one_and_then_the_other<top_k, compression::natural>({.k = 5});
  is_the_one_and_then_the_other<top_k, compression::qsgd>({.density = 0.5});
  is_the_one_and_then_the_other<random_k, compression::sign>({.density = 0.1});
  is_the_one_and_then_the_other<random_k, block_int8>({.density = 1});
}

TEST(chain, shows_what_is_no_number) {
  std::vector<float> gradient{1, 2, 100'000, 3};
  placed<chain<top_k, compression::fp16>> halves(4, {.selection = {.k = 2}});
  EXPECT_EQ(halves.decode(halves.encode(gradient)),
            (std::vector<float>{0, 0, std::numeric_limits<float>::infinity(), 3}));
  EXPECT_TRUE((facts::overflows<chain<top_k, compression::fp16>>));
  EXPECT_FALSE((facts::overflows<chain<top_k, scaled_sign>>));
  gradient[1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW(halves.encode(gradient), usage_error) << "as a selection does";
}

/// The momenta of sent elements start again at 0, however the elements were rounded.
TEST(chain, says_what_it_has_sent) {
  using corrected = compression::momentum_correction<error_feedback<chain<top_k, scaled_sign>>>;
  placed<corrected> codec(4, {.momentum = 0.5, .decorated = {.selection = {.k = 2}}});
  codec.encode(std::vector<float>{4, -1, -8, 2});
  EXPECT_TRUE(std::ranges::equal(codec.row(0), std::vector<float>{0, -1, 0, 2})) << "the momenta";
  EXPECT_TRUE(std::ranges::equal(codec.row(1), std::vector<float>{-2, -1, -2, 2}))
      << "what is left";
}

/// A selection whose drawn element represents its whole run, followed by rounding at random, is
/// unbiased, as both are. A draw from a run of `run` elements is run * g, rounded to powers of two
/// with a variance of at most an eighth of its square. A draw's variance is therefore below 9 / 8 *
/// run * g^2. The mean of all draws is within five standard deviations of g for all but one of more
/// than a million seeds; that of every element, for all but one of 20,000.
TEST(chain, of_unbiased_ones_is_unbiased) {
  constexpr std::size_t n = 64;
  constexpr std::size_t run = 4;
  constexpr int draws = 20'000;
  placed<chain<random_k, compression::natural>> codec(
      n, {.selection = {.k = n / run, .drawn_as = kernels::drawn_as::its_run}});
  std::vector<float> gradient(n);
  for (std::size_t i = 0; i < n; ++i) {
    gradient[i] = (i % 2 == 0 ? 1.0f : -1.0f) * (1 + static_cast<float>(i) / n);
  }
  std::vector<double> mean(n);
  for (int draw = 0; draw < draws; ++draw) {
    const auto decoded = codec.decode(codec.encode(gradient));
    for (std::size_t i = 0; i < n; ++i) {
      mean[i] += static_cast<double>(decoded[i]) / draws;
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    const double g = std::fabs(static_cast<double>(gradient[i]));
    EXPECT_NEAR(mean[i], static_cast<double>(gradient[i]), 5 * g * std::sqrt(9.0 / 8 * run / draws))
        << i;
  }
}

/// A compressor whose memory is no residual: it counts its steps, and sends every second one.
struct every_second {
  using role = tutti::role::compression;
  static constexpr bool summable = false;
  static constexpr std::size_t memory_per_element = 1;
  static constexpr std::array<unsigned, 1> memory_degrees{0};  // a count is of no gradient's scale

  static std::size_t wire_bytes(std::size_t elements) { return elements * sizeof(float); }
  template <class Queue>
  void encode(Queue& queue, std::span<const float> gradient, wire out,
              const chunk_context& where) const {
    const float* from = gradient.data();
    float* steps = where.row(0, gradient.size()).data();
    float* to = out.as<float>().data();
    queue.for_each(gradient.size(), [=](std::size_t i) {
      steps[i] += 1;
      to[i] = std::fmod(steps[i], 2.0f) == 0 ? from[i] : 0;
    });
  }
  template <class Queue>
  void accumulate(Queue& queue, const_wire in, std::span<float> sum) const {
    const float* from = in.as<float>().data();
    float* to = sum.data();
    queue.for_each(sum.size(), [=](std::size_t i) { to[i] += from[i]; });
  }
};
static_assert(compression_policy<every_second>);

/// The compressor keeps its own memory, and the residual lies beside it.
TEST(error_feedback, remembers_beside_what_a_compressor_remembers) {
  constexpr std::size_t n = 9;
  placed<error_feedback<every_second>> codec(n);
  std::vector<float> given(n);
  std::vector<float> arrived(n);
  inline_queue queue;
  for (int step = 1; step <= 6; ++step) {
    std::vector<float> gradient(n);
    for (std::size_t i = 0; i < n; ++i) {
      gradient[i] = static_cast<float>(step * 10) - static_cast<float>(i * i);
      given[i] += gradient[i];
    }
    const auto payload = codec.encode_on(queue, gradient);
    codec.policy.accumulate(queue, const_wire{payload.data(), payload.size()}, arrived,
                            codec.where());
    const std::span<const float> residual = codec.policy.residual(codec.where(), n);
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_EQ(arrived[i] + residual[i], given[i]) << step;
      EXPECT_EQ(residual[i], step % 2 == 0 ? 0 : gradient[i]) << step;
    }
  }
}

/// The residuals of a draw that represents a whole run would grow step by step.
TEST(error_feedback, refuses_what_stands_for_more_than_itself) {
  const random_k::options drawn{.drawn_as = kernels::drawn_as::its_run};
  EXPECT_THROW(error_feedback<random_k>{drawn}, usage_error);
  EXPECT_THROW((error_feedback<chain<random_k, scaled_sign>>({.selection = drawn})), usage_error);
  EXPECT_NO_THROW(error_feedback<random_k>(random_k::options{}));
  EXPECT_NO_THROW(random_k{drawn});
}

/// Where only the encoder knows the length, a server accepts any length that is not too long.
TEST(chain, refuses_a_payload_that_ends_within_its_indices) {
  const chain<top_k, compression::qsgd> policy({.selection = {.density = 0.1}});
  inline_queue queue;
  std::vector<float> sum(100);
  std::vector<std::byte> scratch(policy.scratch_bytes(sum.size()));
  chunk_context where;
  where.scratch = scratch;
  const std::vector<std::byte> payload(39);  // the bytes of ten indices
  EXPECT_THROW(policy.accumulate(queue, {payload.data(), payload.size()}, sum, where),
               communication_error);
  EXPECT_EQ(sum, std::vector<float>(100));
}

TEST(dense_below, refuses_fewer_floats_than_there_are_elements) {
  const compression::dense_below<compression::qsgd> policy;
  inline_queue queue;
  std::vector<float> sum(100);
  const std::vector<std::byte> payload(8);
  EXPECT_THROW(policy.accumulate(queue, {payload.data(), payload.size()}, sum),
               communication_error);
}

/// The second compressor is given as many elements as the first selects.
TEST(error_feedback, refuses_a_code_of_selected_values_that_may_leave_more_than_there_was) {
  using levels = chain<top_k, compression::qsgd>;
  const levels::options a_tenth{.selection = {.density = 0.1}};
  EXPECT_NO_THROW(error_feedback<levels>(a_tenth).capacity(1959));
  EXPECT_THROW(error_feedback<levels>(a_tenth).capacity(1960), usage_error);
  EXPECT_NO_THROW(levels(a_tenth).capacity(1960));
  EXPECT_NO_THROW(error_feedback<levels>({.selection = {.density = 0.1}, .code = {.levels = 12}})
                      .capacity(100'000));
  using long_ones = compression::dense_below<compression::qsgd>;
  EXPECT_THROW(error_feedback<long_ones>({.bytes = 784}).capacity(196), usage_error);
  EXPECT_NO_THROW(error_feedback<long_ones>({.bytes = 788}).capacity(196));
}

}  // namespace
}  // namespace tutti
