// Residuals that decay and are clipped.
#include "tutti/compression/fading_error_feedback.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "compression/placed.hpp"
#include "tutti/compression/push_only.hpp"
#include "tutti/compression/scaled_sign.hpp"
#include "tutti/compression/top_k.hpp"

namespace tutti {
namespace {

using compression::fading_error_feedback;
using compression::scaled_sign;
using compression::top_k;

/// e becomes clip(keep * e) + g, of which the largest element is sent.
TEST(fading_error_feedback, forgets_as_it_says) {
  for (const std::size_t n : awkward_sizes) {
    for (const float keep : {0.0f, 0.5f, 1.0f}) {
      const float most = 0.3f;
      placed<fading_error_feedback<top_k>> codec(
          n, {.keep = keep, .most = most, .decorated = {.k = 1}});
      std::vector<float> residual(n);
      for (unsigned step = 0; step < 6; ++step) {
        const auto gradient = gradient_of(n, 90 + step);
        for (std::size_t i = 0; i < n; ++i) {
          residual[i] = std::clamp(keep * residual[i], -most, most) + gradient[i];
        }
        const auto sent = codec.decode(codec.encode(gradient));
        const auto at = std::ranges::max_element(
            residual, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
        for (std::size_t i = 0; i < n; ++i) {
          const bool leaves = at == residual.begin() + static_cast<std::ptrdiff_t>(i);
          ASSERT_EQ(sent[i], leaves ? residual[i] : 0) << i << " of " << n << ", step " << step;
          residual[i] = leaves ? 0 : residual[i];
        }
        ASSERT_TRUE(std::ranges::equal(codec.row(0), residual)) << n << ", step " << step;
      }
    }
  }
}

TEST(fading_error_feedback, loses_nothing_by_default) {
  constexpr std::size_t n = 1000;
  placed<fading_error_feedback<scaled_sign>> fading(n);
  placed<compression::error_feedback<scaled_sign>> plain(n);
  for (unsigned step = 0; step < 6; ++step) {
    const auto gradient = gradient_of(n, 100 + step);
    ASSERT_EQ(fading.encode(gradient), plain.encode(gradient));
    ASSERT_EQ(std::memcmp(fading.row(0).data(), plain.row(0).data(), n * sizeof(float)), 0);
  }
}

/// NaN is not clipped, so that a check for it finds it.
TEST(fading_error_feedback, leaves_nan_and_cuts_infinities) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> values{1, -0.0f, 5, -5, infinity, -infinity, std::nanf("")};
  inline_queue queue;
  kernels::fade(queue, values, 0.5f, 2);
  EXPECT_EQ((std::vector<float>(values.begin(), values.end() - 1)),
            (std::vector<float>{0.5f, -0.0f, 2, -2, 2, -2}));
  EXPECT_TRUE(std::isnan(values.back()));
}

/// An owner that encodes a sum again lets its residuals decay in the same way.
TEST(fading_error_feedback, fades_at_both_ends) {
  const fading_error_feedback<top_k> policy({.keep = 0, .decorated = {.k = 1}});
  using answers = decltype(relay(policy));
  static_assert(std::is_same_v<answers, fading_error_feedback<top_k>>);
  const answers its = relay(policy);
  std::vector<float> residual{3, 2};
  std::vector<std::byte> scratch(its.scratch_bytes(2));
  chunk_context where;
  where.memory = residual.data();
  where.stride = 2;
  where.scratch = scratch;
  std::vector<std::byte> payload(its.wire_bytes(2));
  inline_queue queue;
  its.encode(queue, std::vector<float>{0, 1}, {payload.data(), payload.size()}, where);
  EXPECT_EQ(residual, (std::vector<float>{0, 0}));
  static_assert(
      facts::identity<decltype(relay(fading_error_feedback<compression::push_only<top_k>>()))>);
}

TEST(fading_error_feedback, refuses_what_grows) {
  using policy = fading_error_feedback<top_k>;
  EXPECT_THROW(policy({.keep = 1.5f}), usage_error);
  EXPECT_THROW(policy({.keep = -0.5f}), usage_error);
  EXPECT_THROW(policy({.most = -1}), usage_error);
  EXPECT_THROW(policy({.keep = std::nanf("")}), usage_error);
}

}  // namespace
}  // namespace tutti
