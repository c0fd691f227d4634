// Momentum correction, factor masking and local clipping against plain loops.
#include "tutti/compression/momentum_correction.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <numeric>
#include <vector>

#include "compression/dgc_vectors.hpp"
#include "compression/in_hex.hpp"
#include "compression/placed.hpp"
#include "tutti/compression/byteps_topk.hpp"
#include "tutti/compression/dense_below.hpp"
#include "tutti/compression/density_warm_up.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/fp16.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/strategies/dgc.hpp"
#include "tutti/strategies/gtopk_sgd.hpp"

namespace tutti {
namespace {

using compression::factor_masking;
using remembered = compression::error_feedback<compression::top_k>;
using corrected = compression::momentum_correction<remembered>;
using floats = std::vector<float>;

/// One worker of the paper's algorithm, which returns what it sends of each element, or 0.
struct worker {
  float momentum;
  factor_masking masking;
  floats u{};
  floats v{};

  floats step(const floats& gradient, std::size_t k) {
    const std::size_t n = gradient.size();
    u.resize(n);
    v.resize(n);
    for (std::size_t i = 0; i < n; ++i) {
      const float kept = momentum * u[i];
      u[i] = kept + gradient[i];
      v[i] = v[i] + u[i];
    }
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return std::abs(v[a]) > std::abs(v[b]); });
    floats sent(n);
    for (std::size_t i = 0; i < std::min(k, n); ++i) {
      sent[order[i]] = v[order[i]];
      v[order[i]] = 0;
      u[order[i]] = masking == factor_masking::sent ? 0.0f : u[order[i]];
    }
    return sent;
  }
};

floats row_of(placed<corrected>& codec, std::size_t i) {
  return {codec.row(i).begin(), codec.row(i).end()};
}

TEST(MomentumCorrection, FollowsThePublishedRecurrence) {
  for (const factor_masking masking : {factor_masking::sent, factor_masking::none}) {
    for (const std::size_t n : {1u, 7u, 1000u}) {
      placed<corrected> codec(
          n, {.momentum = 0.9, .masking = masking, .decorated = {.density = 0.01}});
      worker expected{0.9f, masking};
      for (unsigned step = 0; step < 30; ++step) {
        const floats gradient = gradient_of(n, step);
        const floats sent = expected.step(gradient, std::max<std::size_t>(n / 100, 1));
        ASSERT_EQ(codec.decode(codec.encode(gradient)), sent) << "step " << step << ", n=" << n;
        ASSERT_EQ(row_of(codec, 0), expected.u) << "step " << step << ", n=" << n;
        ASSERT_EQ(row_of(codec, 1), expected.v) << "step " << step << ", n=" << n;
        ASSERT_FALSE(codec.overran);
      }
    }
  }
}

TEST(MomentumCorrection, IsItsAuthorsProgram) {
  constexpr std::size_t n = 48;
  for (const test::dgc_run& run : test::dgc_runs()) {
    const options_of<corrected> values{
        .momentum = 0.9, .masking = run.masking, .decorated = {.density = 0.125}};
    std::vector<placed<corrected>> ranks(2, placed<corrected>(n, values));
    for (std::size_t step = 0; step < run.sent.size(); ++step) {
      for (std::size_t rank = 0; rank < 2; ++rank) {
        const auto payload = ranks[rank].encode(gradient_in_512ths(n, 2 * step + rank));
        std::vector<std::uint32_t> where(payload.size() / 8);
        floats sent(where.size());
        std::memcpy(where.data(), payload.data(), payload.size() / 2);
        std::memcpy(sent.data(), payload.data() + payload.size() / 2, payload.size() / 2);
        ASSERT_EQ(where, run.sent[step][rank]) << "step " << step << ", rank " << rank;
        if (step + 1 == run.sent.size()) {
          EXPECT_EQ(sent, run.values[rank]);
        }
      }
    }
    EXPECT_EQ(row_of(ranks[1], 0), run.momenta);
    EXPECT_EQ(row_of(ranks[1], 1), run.velocities);
  }
}

/// Values are multiples of one half, so that every sum is exact. Each momentum that the selection
/// was given has been sent or is a residual. A gradient counts twice in the long run, less what is
/// still in u and what of u was masked.
TEST(MomentumCorrection, LosesWhatIsMaskedAlone) {
  constexpr std::size_t n = 64;
  for (const factor_masking masking : {factor_masking::sent, factor_masking::none}) {
    placed<corrected> codec(n, {.momentum = 0.5, .masking = masking, .decorated = {.k = 5}});
    std::vector<double> given(n);
    std::vector<double> momenta(n);
    std::vector<double> sent(n);
    std::vector<double> masked(n);
    for (unsigned step = 0; step < 12; ++step) {
      floats gradient(n);
      for (std::size_t i = 0; i < n; ++i) {
        gradient[i] = static_cast<float>((i * 37 + step * 101) % 63) - 31.0f;
        given[i] += static_cast<double>(gradient[i]);
        momenta[i] = momenta[i] / 2 + static_cast<double>(gradient[i]);
      }
      const floats decoded = codec.decode(codec.encode(gradient));
      for (std::size_t i = 0; i < n; ++i) {
        sent[i] += static_cast<double>(decoded[i]);
        if (decoded[i] != 0 && masking == factor_masking::sent) {
          masked[i] += momenta[i];
          momenta[i] = 0;
        }
      }
    }
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_EQ(static_cast<double>(codec.row(0)[i]), momenta[i]) << i;
      EXPECT_EQ(sent[i] + static_cast<double>(codec.row(1)[i]),
                2 * given[i] - momenta[i] - masked[i])
          << i;
    }
    const bool loses = masked != std::vector<double>(n);
    EXPECT_EQ(loses, masking == factor_masking::sent);
  }
}

TEST(MomentumCorrection, ClipsEachRanksGradient) {
  const floats gradient{3, 0, -4, 12};  // its norm is 13
  const auto momenta_of = [&](double clip, std::uint64_t ranks) {
    placed<corrected> codec(4, {.momentum = 0.5, .clip = clip, .decorated = {.k = 1}});
    codec.ranks = ranks;
    codec.encode(gradient);
    EXPECT_FALSE(codec.overran);
    return row_of(codec, 1);
  };
  EXPECT_EQ(momenta_of(0, 4), (floats{3, 0, -4, 0}));
  EXPECT_EQ(momenta_of(26.1, 4), (floats{3, 0, -4, 0}));
  const auto factor = static_cast<float>(6.5 / 13.000001);
  EXPECT_EQ(momenta_of(13, 4), (floats{factor * 3, 0, factor * -4, 0}));
  EXPECT_EQ(momenta_of(6.5, 1), momenta_of(13, 4));
  EXPECT_NE(momenta_of(13, 1), momenta_of(13, 4));
  // A clipped gradient is added to a momentum, which is not clipped again.
  placed<corrected> twice(4, {.momentum = 0.5, .clip = 6.5, .decorated = {.k = 1}});
  twice.encode(gradient);
  twice.encode(gradient);
  EXPECT_EQ(twice.row(0)[0], 0.5f * (factor * 3) + factor * 3);
}

TEST(MomentumCorrection, IsForAnyCompressor) {
  using halves = compression::momentum_correction<compression::fp16>;
  static_assert(facts::summable<halves> && facts::memory_per_element<halves> == 1);
  static_assert(facts::memory_per_element<corrected> == 2 && !facts::summable<corrected>);
  static_assert(std::is_same_v<decltype(halves{}.relay()), compression::fp16>);
  placed<halves> codec(3, {.momentum = 0.5});
  EXPECT_EQ(codec.decode(codec.encode(floats{1, 2, 3})), (floats{1, 2, 3}));
  EXPECT_EQ(codec.decode(codec.encode(floats{1, 2, 3})), (floats{1.5, 3, 4.5}));
  placed<compression::momentum_correction<compression::none>> whole(3, {.momentum = 0.5});
  EXPECT_EQ(whole.decode(whole.encode(floats{1, 2, 3})), (floats{1, 2, 3}));
  EXPECT_EQ(whole.decode(whole.encode(floats{1, 2, 3})), (floats{1.5, 3, 4.5}));
}

/// What is sent as floats is no selection and is not masked; BytePS's selections are.
TEST(MomentumCorrection, MasksWhatIsSelectedAlone) {
  const auto momenta = [](auto codec) {
    codec.encode(floats{4, -1, -8, 2});
    return floats(codec.row(0).begin(), codec.row(0).end());
  };
  using some = compression::momentum_correction<compression::dense_below<remembered>>;
  const floats all{4, -1, -8, 2};
  const floats rest{0, -1, 0, 2};
  EXPECT_EQ(momenta(placed<some>(4, {.decorated = {.compressed = {.k = 2}, .bytes = 17}})), all);
  EXPECT_EQ(momenta(placed<some>(4, {.decorated = {.compressed = {.k = 2}, .bytes = 16}})), rest);
  using of_byteps =
      compression::momentum_correction<compression::error_feedback<compression::byteps_topk>>;
  EXPECT_EQ(momenta(placed<of_byteps>(4, {.decorated = {.k = 2}})), rest);
}

/// Chunks that are sent as floats have the momentum of a dense optimizer, and their residuals are
/// sent with them.
TEST(MomentumCorrection, IsOfShortChunksToo) {
  using some = compression::momentum_correction<compression::dense_below<remembered>>;
  const auto set = [](std::size_t dense_below) {
    return options_of<some>{.momentum = 0.5,
                            .decorated = {.compressed = {.k = 1}, .bytes = dense_below}};
  };
  placed<some> codec(2, set(9));
  EXPECT_EQ(codec.decode(codec.encode(floats{4, -1})), (floats{4, -1}));
  EXPECT_EQ(codec.decode(codec.encode(floats{4, -1})), (floats{6, -1.5}));
  EXPECT_EQ(codec.decode(codec.encode(floats{0, 0})), (floats{3, -0.75}));
  codec.policy = some(set(8));
  EXPECT_EQ(codec.decode(codec.encode(floats{0, 0})), (floats{1.5, 0}));
  codec.policy = some(set(9));
  EXPECT_EQ(codec.decode(codec.encode(floats{2, 0})), (floats{2, -0.1875 - 0.375}));
}

TEST(MomentumCorrection, RefusesWhatIsNone) {
  EXPECT_THROW(corrected({.momentum = 1}), usage_error);
  EXPECT_THROW(corrected({.momentum = -0.1}), usage_error);
  EXPECT_THROW(corrected({.clip = -1}), usage_error);
  EXPECT_THROW(corrected({.clip = std::nan("")}), usage_error);
  EXPECT_THROW(corrected({.decorated = {.density = 2}}), usage_error);
}

TEST(DensityWarmUp, IsThePapers) {
  const auto epochs = [](const auto& ramp, double last) {
    std::vector<double> made;
    for (std::size_t epoch = 0; epoch < 6; ++epoch) {
      made.push_back(ramp(epoch, last));
    }
    return made;
  };
  using densities = std::vector<double>;
  EXPECT_EQ(epochs(strategies::DGC::warm_up, 0.001),
            (densities{0.25, 0.0625, 0.015625, 0.004, 0.001, 0.001}));
  EXPECT_EQ(epochs(strategies::gTopKSGD::warm_up, 0.001),
            (densities{0.004, 0.001, 0.001, 0.001, 0.001, 0.001}));
  EXPECT_EQ(epochs(strategies::DGC::warm_up, 0.05),
            (densities{0.25, 0.0625, 0.05, 0.05, 0.05, 0.05}));
}

}  // namespace
}  // namespace tutti
