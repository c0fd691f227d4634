// Compares compression::nesterov_momentum and rescaled_error_feedback with BytePS: with messages
// that BytePS's own functions made while the learning rate changed, and with plain loops.
#include "tutti/compression/nesterov_momentum.hpp"

#include <cmath>
#include <cstddef>
#include <gtest/gtest.h>
#include <string>
#include <type_traits>
#include <vector>

#include "compression/in_hex.hpp"
#include "compression/placed.hpp"
#include "tutti/base/error.hpp"
#include "tutti/compression/byteps_onebit.hpp"
#include "tutti/compression/byteps_topk.hpp"
#include "tutti/compression/none.hpp"
#include "tutti/compression/rescaled_error_feedback.hpp"
#include "tutti/compression/scaled_sign.hpp"

namespace tutti {
namespace {

using compression::byteps_onebit;
using compression::byteps_topk;
using compression::nesterov_momentum;
using compression::rescaled_error_feedback;

constexpr double rates[] = {0.1, 0.1, 0.3, 0.05};

/// Checks the messages of four steps on 64 elements of gradient_in_512ths, one at each of these
/// rates. The test takes the engine's part and tells the compressor of each change.
template <class C>
void sends_at_changing_rates(const options_of<C>& values, const std::vector<std::string>& words) {
  constexpr std::size_t n = 64;
  placed<C> codec(n, values);
  inline_queue queue;
  for (std::size_t step = 0; step < words.size(); ++step) {
    if (step > 0) {
      const auto factor = static_cast<float>(rates[step - 1] / rates[step]);
      codec.policy.rescale(queue, codec.where(), n, factor);
    }
    EXPECT_EQ(in_hex(codec.encode(gradient_in_512ths(n, step))), words[step]) << step;
    EXPECT_FALSE(codec.overran);
  }
}

/// The messages were made by NesterovMomentumCompressor, VanillaErrorFeedbackCompressor,
/// OnebitCompressor and TopkCompressor of BytePS' byteps/common/compressor at commit f5df52fe, with
/// its CpuReducer, compiled alone. The file lr.s that they read held each step's rate.
TEST(rescaled_error_feedback, sends_what_byteps_sends) {
  sends_at_changing_rates<rescaled_error_feedback<byteps_onebit>>(
      {}, {"00ff0f801f00ff0f0026713f", "7f1f00bf007f1f00287d893f", "0f00ff07ff0f00ff0f8c703f",
           "b00337f82ff0073fa0322640"});
}
TEST(nesterov_momentum, sends_what_byteps_sends) {
  sends_at_changing_rates<nesterov_momentum<rescaled_error_feedback<byteps_onebit>>>(
      {}, {"00ff0f801f00ff0f4c17e53f", "1f3f008f001f7f0060710640", "07033f977f2f033fdf51ba3f",
           "3b0d47a98f530dd75148b040"});
  sends_at_changing_rates<nesterov_momentum<rescaled_error_feedback<byteps_topk>>>(
      {.compressed = {.k = 5}},
      {"3000000066365b4017000000339362c0180000009a7964400000000000806dc02f00000066d66bc0",
       "2d000000aebb9cc0200000001fa5a14016000000a4fca9c008000000c2e1ac402e0000004739b5c0",
       "3e000000539545c00f000000dfef49c0100000001d6f5c4027000000803162c03f00000023737ac0",
       "3700000068ca8ec126000000a62b90c119000000d16d944101000000e01da94128000000ce679341"});
}

/// EF-signSGD as published: p = rate * g + e; mean(|p|) * sign(p) is sent; e = p - sent.
TEST(rescaled_error_feedback, has_the_rate_inside_the_residual) {
  for (const std::size_t n : {1u, 33u, 1000u}) {
    placed<rescaled_error_feedback<compression::scaled_sign>> codec(n);
    inline_queue queue;
    std::vector<double> e(n, 0.0);
    for (unsigned step = 0; step < 12; ++step) {
      const double rate = step % 3 == 0 ? 0.5 : 0.125;
      const double before = (step + 2) % 3 == 0 ? 0.5 : 0.125;
      if (step > 0) {
        codec.policy.rescale(queue, codec.where(), n, static_cast<float>(before / rate));
      }
      const auto gradient = gradient_of(n, 70 + step);
      const auto sent = codec.decode(codec.encode(gradient));
      double scale = 0;
      for (std::size_t i = 0; i < n; ++i) {
        e[i] += rate * double{gradient[i]};
        scale += std::fabs(e[i]) / static_cast<double>(n);
      }
      for (std::size_t i = 0; i < n; ++i) {
        const double published = e[i] < 0 ? -scale : scale;
        if (std::fabs(e[i]) > 1e-5) {  // a smaller one's sign may depend on rounding
          ASSERT_NEAR(rate * double{sent[i]}, published, 1e-5) << i << " in step " << step;
        }
        e[i] -= rate * double{sent[i]};
        ASSERT_NEAR(rate * double{codec.row(0)[i]}, e[i], 1e-5) << i << " in step " << step;
      }
    }
  }
}

TEST(nesterov_momentum, is_its_recurrence) {
  for (const std::size_t n : awkward_sizes) {
    placed<nesterov_momentum<compression::none>> codec(n, {.momentum = 0.75f});
    std::vector<double> m(n, 0.0);
    for (unsigned step = 0; step < 5; ++step) {
      const auto gradient = gradient_of(n, step);
      const auto sent = codec.decode(codec.encode(gradient));
      for (std::size_t i = 0; i < n; ++i) {
        m[i] = 0.75 * m[i] + double{gradient[i]};
        ASSERT_NEAR(sent[i], 0.75 * m[i] + double{gradient[i]}, 1e-5) << i << " of " << n;
      }
    }
  }
}

TEST(nesterov_momentum, is_the_workers_alone) {
  using both = nesterov_momentum<rescaled_error_feedback<byteps_topk>>;
  static_assert(std::is_same_v<decltype(relay(both{})), rescaled_error_feedback<byteps_topk>>);
  static_assert(facts::rescales<both> && !facts::rescales<nesterov_momentum<byteps_topk>>);
  EXPECT_EQ(both{}.wire_bytes(1000), byteps_topk{}.wire_bytes(1000));
  EXPECT_EQ(facts::memory_per_element<both>, 2u);
  EXPECT_THROW(nesterov_momentum<byteps_topk>({.momentum = 1}), usage_error);
  EXPECT_THROW(nesterov_momentum<byteps_topk>({.momentum = -0.5f}), usage_error);
}

}  // namespace
}  // namespace tutti
