// Laws of every compressor, typed over the list in support/policies.hpp.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "compression/placed.hpp"
#include "support/one_of_compressors.hpp"
#include "support/policies.hpp"

namespace tutti {
namespace {

static_assert(clears_sent<compression::byteps_topk> && clears_sent<compression::byteps_randomk>);
static_assert(
    clears_sent<compression::dense_below<compression::error_feedback<compression::top_k>>>);

template <class C>
class compression_law : public testing::Test {};
TYPED_TEST_SUITE(compression_law, testing_lists::compressions);

TYPED_TEST(compression_law, writes_exactly_as_many_bytes_as_it_says) {
  for (const std::size_t n : awkward_sizes) {
    const auto gradient = gradient_of(n, 1);
    placed<TypeParam> once(n);
    placed<TypeParam> again(n);
    const auto payload = once.encode(gradient, std::byte{0x00});
    EXPECT_EQ(payload, again.encode(gradient, std::byte{0xff})) << "a byte was left out, n=" << n;
    EXPECT_FALSE(once.overran || again.overran) << n;
    EXPECT_LE(payload.size(), capacity(once.policy, n));
    EXPECT_LE(expected(once.policy, n), capacity(once.policy, n));
    if constexpr (!facts::variable_length<TypeParam>) {
      EXPECT_EQ(payload.size(), once.policy.wire_bytes(n));
    }
  }
}

TYPED_TEST(compression_law, says_how_much_room_fewer_elements_take) {
  const placed<TypeParam> codec(0);
  for (std::size_t n = 0; n < 100; ++n) {
    std::size_t most = 0;
    for (std::size_t fewer = 0; fewer <= n; ++fewer) {
      most = std::max(most, capacity(codec.policy, fewer));
    }
    EXPECT_GE(most_bytes(codec.policy, n), most) << n;
  }
}

TYPED_TEST(compression_law, leaves_the_gradient_alone) {
  for (const std::size_t n : awkward_sizes) {
    const auto gradient = gradient_of(n, 2);
    auto seen = gradient;
    placed<TypeParam> codec(n);
    codec.encode(seen);
    EXPECT_TRUE(n == 0 || std::memcmp(seen.data(), gradient.data(), n * sizeof(float)) == 0);
  }
}

TYPED_TEST(compression_law, is_finite_on_zeros) {
  for (const std::size_t n : awkward_sizes) {
    placed<TypeParam> codec(n);
    for (int step = 0; step < 3; ++step) {
      for (const float each : codec.decode(codec.encode(std::vector<float>(n)))) {
        ASSERT_TRUE(std::isfinite(each)) << n;
      }
    }
  }
}

/// Returns zeros of both signs, the least numbers and, if asked for, the largest.
std::vector<float> extremes_of(std::size_t elements, unsigned seed, bool largest) {
  using limits = std::numeric_limits<float>;
  const float all[] = {
      0.0f,          -0.0f,          limits::denorm_min(), -limits::denorm_min(), 1e-40f, -3e-39f,
      limits::min(), -limits::min(), limits::max(),        -limits::max(),        1e38f,  -2e38f};
  std::mt19937 random(seed);
  std::vector<float> made(elements);
  for (float& each : made) {
    each = all[random() % (largest ? std::size(all) : 8)];
  }
  return made;
}

TYPED_TEST(compression_law, is_finite_on_the_least_numbers) {
  for (const std::size_t n : awkward_sizes) {
    placed<TypeParam> codec(n);
    for (unsigned step = 0; step < 3; ++step) {
      const auto payload = codec.encode(extremes_of(n, step, false));
      EXPECT_FALSE(codec.overran) << n;
      for (const float each : codec.decode(payload)) {
        ASSERT_TRUE(std::isfinite(each)) << n;
      }
    }
  }
}

/// Whatever a gradient holds, the payload has the stated length and can be decoded, or a selection
/// has refused the gradient by an error that names the element.
TYPED_TEST(compression_law, survives_what_is_no_number) {
  using limits = std::numeric_limits<float>;
  for (const std::size_t n : awkward_sizes) {
    for (const float odd : {limits::infinity(), -limits::infinity(), limits::quiet_NaN()}) {
      placed<TypeParam> codec(n);
      for (unsigned step = 0; step < 2; ++step) {
        auto gradient = extremes_of(n, step, true);
        for (std::size_t i = step; i < n; i += 37) {
          gradient[i] = odd;
        }
        try {
          const auto payload = codec.encode(gradient);
          EXPECT_FALSE(codec.overran) << n;
          EXPECT_EQ(codec.decode(payload).size(), n);
        } catch (const usage_error& refused) {
          EXPECT_NE(std::string(refused.what()).find("element 5"), std::string::npos)
              << refused.what();
          break;
        }
      }
    }
  }
}

/// A payload from a peer may be anything; decoding it must not write outside its memory.
TYPED_TEST(compression_law, writes_nothing_outside_whatever_came) {
  constexpr std::size_t guard = 64;
  std::mt19937 random(3);
  for (const std::size_t n : {1u, 33u, 1000u}) {
    placed<TypeParam> codec(n);
    const auto made = codec.encode(gradient_of(n, 1));
    for (int time = 0; time < 20; ++time) {
      auto came = made;
      for (std::byte& each : came) {
        const bool other = time < 2 || random() % 4 == 0;
        each = time == 0 ? std::byte{0xff} : other ? static_cast<std::byte>(random()) : each;
      }
      std::vector<float> sum(n + 2 * guard, 0.5f);
      inline_queue queue;
      try {
        codec.accumulate_on(queue, came, std::span(sum).subspan(guard, n));
      } catch (const communication_error& refused) {
        EXPECT_NE(std::string(refused.what()).find("a payload "), std::string::npos)
            << refused.what();
      }
      const auto begin = sum.begin() + guard;
      EXPECT_EQ(std::count(sum.begin(), begin, 0.5f), guard);
      EXPECT_EQ(std::count(begin + static_cast<std::ptrdiff_t>(n), sum.end(), 0.5f), guard);
    }
  }
}

TYPED_TEST(compression_law, accumulates_onto_what_is_there) {
  for (const std::size_t n : awkward_sizes) {
    placed<TypeParam> codec(n);
    const auto payload = codec.encode(gradient_of(n, 3));
    const auto alone = codec.decode(payload);
    const auto onto = codec.decode(payload, 0.625f);
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_EQ(onto[i], 0.625f + alone[i]) << "element " << i << " of " << n;
    }
  }
}

TYPED_TEST(compression_law, decodes_in_place_of_what_is_there) {
  constexpr float odd = std::numeric_limits<float>::quiet_NaN();
  for (const std::size_t n : awkward_sizes) {
    placed<TypeParam> codec(n);
    for (const auto& gradient : {gradient_of(n, 3), std::vector<float>(n)}) {
      const auto payload = codec.encode(gradient);
      std::vector<float> values(n, odd);
      inline_queue queue;
      tutti::decode(codec.policy, queue, const_wire{payload.data(), payload.size()}, values,
                    codec.where());
      EXPECT_EQ(values, codec.decode(payload)) << n;
    }
  }
}

/// The queue has only what every queue has, so that what compiles here compiles for each of them.
TYPED_TEST(compression_law, does_the_same_on_a_queue_that_runs_later) {
  for (const std::size_t n : awkward_sizes) {
    placed<TypeParam> now(n);
    placed<TypeParam> later(n);
    deferred_queue queue;
    std::vector<std::byte> payload;
    for (unsigned step = 0; step < 3; ++step) {
      const auto gradient = gradient_of(n, step);
      payload = now.encode(gradient);
      ASSERT_EQ(payload, later.encode_on(queue, gradient)) << n;
    }
    std::vector<float> sum(n, 0.25f);
    later.accumulate_on(queue, payload, sum);
    EXPECT_EQ(sum, std::vector<float>(n, 0.25f)) << "it did not wait for its queue";
    queue.drain();
    EXPECT_EQ(sum, now.decode(payload, 0.25f));
    if constexpr (facts::summable<TypeParam>) {
      auto expected = payload;
      auto folded = payload;
      inline_queue at_once;
      now.policy.fold(at_once, wire{expected.data(), expected.size()},
                      const_wire(payload.data(), payload.size()));
      later.policy.fold(queue, wire{folded.data(), folded.size()},
                        const_wire(payload.data(), payload.size()));
      queue.drain();
      EXPECT_EQ(folded, expected);
    }
  }
}

/// Exactly the momenta of sent elements start again at 0.
TYPED_TEST(compression_law, clears_what_it_has_sent_if_it_selects) {
  if constexpr (!clears_sent<TypeParam>) {
    GTEST_SKIP() << "it sends every element";
  } else {
    for (const std::size_t n : awkward_sizes) {
      placed<TypeParam> codec(n);
      const auto payload = codec.encode(gradient_of(n, 9));
      const auto sent = codec.decode(payload);
      std::vector<float> values(n, 7);
      inline_queue queue;
      codec.policy.clear_sent(queue, {payload.data(), payload.size()}, values);
      for (std::size_t i = 0; i < n; ++i) {
        ASSERT_TRUE(values[i] == 0 || (values[i] == 7 && sent[i] == 0)) << i << " of " << n;
      }
      EXPECT_TRUE(n < 1000 || std::ranges::count(values, 7.0f) > 0);
    }
  }
}

std::vector<float> times(std::span<const float> values, float factor) {
  std::vector<float> made(values.begin(), values.end());
  for (float& each : made) {
    each *= factor;
  }
  return made;
}

template <class C, class... Some>
constexpr bool is_one_of = (std::is_same_v<C, Some> || ...);
/// Whether small numbers are rounded more coarsely than others, for which losses are scaled.
template <class C>
constexpr bool sends_halves =
    is_one_of<C, compression::fp16, compression::error_feedback<compression::fp16>,
              compression::momentum_correction<compression::fp16>>;

template <class C>
void sends_the_same_whatever_the_loss_is_multiplied_by(const options_of<C>& set) {
  for (const std::size_t n : awkward_sizes) {
    placed<C> plain(n, set);
    placed<C> scaled(n, set);
    unsigned step = 0;
    for (const float scale : {32.0f, 32.0f, 1024.0f, 0.5f, 8.0f, 8.0f}) {
      const auto gradient = times(gradient_of(n, step++), 16);
      scaled.change_scale(scale);
      const auto sent = plain.decode(plain.encode(gradient));
      const auto sent_scaled = scaled.decode(scaled.encode(times(gradient, scale)));
      ASSERT_EQ(times(sent_scaled, 1 / scale), sent) << "step " << step << ", n=" << n;
      for (std::size_t row = 0; row != facts::memory_per_element<C>; ++row) {
        ASSERT_EQ(times(scaled.row(row), 1 / scale), times(plain.row(row), 1))
            << "row " << row << ", step " << step << ", n=" << n;
      }
    }
  }
}

/// Where the loss is multiplied by powers of two, which may change between steps, what is sent and
/// remembered is multiplied by just them. The bounds of `make_small` are among the gradients'
/// magnitudes.
TYPED_TEST(compression_law, sends_the_same_whatever_the_loss_is_multiplied_by) {
  if constexpr (sends_halves<TypeParam>) {
    GTEST_SKIP() << "small numbers have fewer bits";
  } else {
    options_of<TypeParam> set;
    test::make_small(set);
    if constexpr (requires { set.clip; }) {
      set.clip = 2;
    }
    sends_the_same_whatever_the_loss_is_multiplied_by<TypeParam>(set);
  }
}
TEST(compression_of_scaled_losses, sends_the_same_under_other_options) {
  using compression::error_feedback;
  sends_the_same_whatever_the_loss_is_multiplied_by<error_feedback<compression::byteps_onebit>>(
      {.worth = compression::sign_is_worth::one});
  sends_the_same_whatever_the_loss_is_multiplied_by<compression::byteps_onebit>(
      {.worth = compression::sign_is_worth::one});
  sends_the_same_whatever_the_loss_is_multiplied_by<error_feedback<compression::dithering>>(
      {.levels = 8,
       .spacing = kernels::level_spacing::natural,
       .norm = kernels::chunk_norm::euclidean});
}

TYPED_TEST(compression_law, gives_back_what_it_took_if_lossless) {
  if constexpr (!facts::lossless<TypeParam>) {
    GTEST_SKIP() << "it is lossy";
  } else {
    for (const std::size_t n : awkward_sizes) {
      placed<TypeParam> codec(n);
      const auto gradient = gradient_of(n, 4);
      EXPECT_EQ(codec.decode(codec.encode(gradient)), gradient);
    }
  }
}

TYPED_TEST(compression_law, folds_to_the_sum_if_summable) {
  if constexpr (!facts::summable<TypeParam>) {
    GTEST_SKIP() << "its payloads do not add";
  } else {
    constexpr double coarsest = 1.0 / 256;  // bfloat16's unit roundoff
    for (const std::size_t n : awkward_sizes) {
      const auto x = gradient_of(n, 5);
      const auto y = gradient_of(n, 6);
      placed<TypeParam> mine(n);
      placed<TypeParam> theirs(n);
      auto into = mine.encode(x);
      const auto from = theirs.encode(y);
      inline_queue queue;
      mine.policy.fold(queue, wire{into.data(), into.size()}, {from.data(), from.size()});
      const auto sum = mine.decode(into);
      for (std::size_t i = 0; i < n; ++i) {
        const double exact = double{x[i]} + double{y[i]};
        const double bound = 2 * coarsest * (std::fabs(x[i]) + std::fabs(y[i])) + 1e-7;
        ASSERT_NEAR(sum[i], exact, bound) << "element " << i << " of " << n;
      }
    }
  }
}

TYPED_TEST(compression_law, folds_run_by_run_as_it_folds_the_whole) {
  if constexpr (!facts::summable<TypeParam>) {
    GTEST_SKIP() << "its payloads do not add";
  } else {
    constexpr std::size_t n = 1000;
    placed<TypeParam> codec(n);
    const auto from = codec.encode(gradient_of(n, 7));
    auto whole = codec.encode(gradient_of(n, 8));
    auto in_runs = whole;
    inline_queue queue;
    codec.policy.fold(queue, wire{whole.data(), whole.size()}, {from.data(), from.size()});
    const std::size_t cuts[] = {0, 1, 34, 34, 511, n};
    for (std::size_t run = 0; run + 1 < std::size(cuts); ++run) {
      const std::size_t begin = codec.policy.wire_bytes(cuts[run]);
      const std::size_t bytes = codec.policy.wire_bytes(cuts[run + 1]) - begin;
      codec.policy.fold(queue, wire{in_runs.data() + begin, bytes}, {from.data() + begin, bytes});
    }
    EXPECT_EQ(in_runs, whole);
  }
}

/// Error feedback around each compressor loses nothing.
template <class C>
class error_feedback_law : public testing::Test {};
TYPED_TEST_SUITE(error_feedback_law, testing_lists::memoryless_compressions);

TYPED_TEST(error_feedback_law, conserves_what_it_was_given) {
  for (const std::size_t n : awkward_sizes) {
    placed<compression::error_feedback<TypeParam>> codec(n);
    for (unsigned step = 0; step < 8; ++step) {
      const auto gradient = gradient_of(n, 20 + step);
      std::vector<float> input(codec.row(0).begin(), codec.row(0).end());
      for (std::size_t i = 0; i < n; ++i) {
        input[i] += gradient[i];
      }
      const auto sent = codec.decode(codec.encode(gradient));
      for (std::size_t i = 0; i < n; ++i) {
        const double kept = double{sent[i]} + double{codec.row(0)[i]};
        const double larger = std::max(std::fabs(input[i]), std::fabs(sent[i]));
        const bool selects = std::is_same_v<TypeParam, compression::top_k> ||
                             std::is_same_v<TypeParam, compression::byteps_topk> ||
                             std::is_same_v<TypeParam, compression::byteps_randomk>;
        const double bound = selects ? 0 : std::ldexp(larger, -24);
        ASSERT_LE(std::fabs(kept - double{input[i]}), bound) << "element " << i << " of " << n;
      }
    }
  }
}

/// Half of the least float is not a float, so an element may lose one rounding.
TYPED_TEST(error_feedback_law, conserves_the_least_numbers) {
  constexpr double least = 0x1p-149;
  for (const std::size_t n : awkward_sizes) {
    placed<compression::error_feedback<TypeParam>> codec(n);
    for (unsigned step = 0; step < 8; ++step) {
      const auto gradient = extremes_of(n, 60 + step, false);
      std::vector<float> input(codec.row(0).begin(), codec.row(0).end());
      for (std::size_t i = 0; i < n; ++i) {
        input[i] += gradient[i];
      }
      const auto sent = codec.decode(codec.encode(gradient));
      for (std::size_t i = 0; i < n; ++i) {
        const double kept = double{sent[i]} + double{codec.row(0)[i]};
        const double larger = std::max(std::fabs(input[i]), std::fabs(sent[i]));
        ASSERT_LE(std::fabs(kept - double{input[i]}), std::max(least, std::ldexp(larger, -24)))
            << "element " << i << " of " << n;
      }
    }
  }
}

TYPED_TEST(error_feedback_law, says_with_a_fused_encoder_what_it_means_in_steps) {
  using policy = compression::error_feedback<TypeParam>;
  if (!compression::encodes_with_residual<TypeParam>) {
    GTEST_SKIP() << "it has no fused form";
  }
  for (const std::size_t n : awkward_sizes) {
    placed<policy> fused(n);
    placed<policy> plain(n);
    inline_queue queue;
    for (unsigned step = 0; step < 8; ++step) {
      const auto gradient = gradient_of(n, 40 + step);
      const auto payload = fused.encode(gradient);
      std::vector<std::byte> expected(payload.size());
      chunk_context where = plain.where();
      where.step = step;
      plain.policy.encode_in_steps(queue, gradient, wire{expected.data(), expected.size()}, where);
      ASSERT_EQ(payload, expected) << "step " << step << ", n=" << n;
      ASSERT_TRUE(n == 0 ||
                  std::memcmp(fused.row(0).data(), plain.row(0).data(), n * sizeof(float)) == 0)
          << "step " << step << ", n=" << n;
    }
  }
}

TYPED_TEST(error_feedback_law, keeps_the_facts_of_what_it_decorates) {
  using policy = compression::error_feedback<TypeParam>;
  EXPECT_EQ(facts::summable<policy>, facts::summable<TypeParam>);
  EXPECT_EQ(facts::unit_of<policy>, facts::unit_of<TypeParam>);
  EXPECT_EQ(facts::memory_per_element<policy>, 1 + facts::memory_per_element<TypeParam>);
  EXPECT_EQ(policy{}.wire_bytes(1000), TypeParam{}.wire_bytes(1000));
}

}  // namespace
}  // namespace tutti
