// Compares sign, signum and scaled_sign with the published layout, vote and momentum, in double.
#include "tutti/compression/sign.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <iterator>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "compression/deepspeed_vectors.hpp"
#include "compression/dist_ef_sgd_vectors.hpp"
#include "compression/ef_sign_sgd_vectors.hpp"
#include "compression/fused.hpp"
#include "compression/in_hex.hpp"
#include "compression/placed.hpp"
#include "compression/sign_layout.hpp"
#include "compression/sign_vectors.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/rescaled_error_feedback.hpp"
#include "tutti/compression/scaled_sign.hpp"
#include "tutti/compression/signum.hpp"

namespace tutti {
namespace {

/// Lengths around words, around strips of vectors and, at the end, of more words than a kernel
/// keeps in a cache.
constexpr std::size_t lengths[] = {0,    1,    31,   32,   33,      64,       1000,
                                   2047, 2048, 2049, 4099, 300'007, 2'300'003};

TEST(sign, packs_as_published) {
  for (const std::size_t n : lengths) {
    const auto gradient = gradient_of(n, 1);
    placed<compression::sign> codec(n);
    const auto payload = codec.encode(gradient);
    EXPECT_EQ(words_of(payload), published_layout(doubles(gradient))) << n;
    if (n != 0) {
      EXPECT_EQ(doubles(codec.decode(payload)), unpacked(words_of(payload), n)) << n;
    }
  }
}

TEST(sign, under_error_feedback_says_in_one_pass_what_steps_say) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const std::size_t n : lengths) {
    expect_fused_as_in_steps<compression::sign>(n, {}, [n](int step) {
      auto gradient = gradient_of(n, static_cast<unsigned>(step));
      for (std::size_t i = 0; i < n; i += 97) {  // also values that leave no residual at all
        const float odd[] = {1, -1, -0.0f, std::numeric_limits<float>::denorm_min(), 3e38f};
        gradient[i] = odd[i % std::size(odd)];
      }
      if (n > 40) {
        gradient[40] = -infinity;
      }
      return gradient;
    });
  }
}

TEST(sign, of_two_columns_by_hand) {
  std::vector<float> gradient(64, 1.0f);
  gradient[0] = -1;   // row 0, column 0: the top bit of word 0
  gradient[3] = -1;   // row 1, column 1
  gradient[63] = -1;  // row 31, column 1: the bottom bit of word 1
  placed<compression::sign> codec(64);
  EXPECT_EQ(words_of(codec.encode(gradient)), (packed_words{0x8000'0000u, 0x4000'0001u}));
}

TEST(sign, counts_zeros_and_nan_as_positive) {
  const std::vector<float> gradient = {0.0f, -0.0f, std::nanf(""), -std::nanf(""),
                                       -std::numeric_limits<float>::denorm_min()};
  placed<compression::sign> codec(gradient.size());
  EXPECT_EQ(codec.decode(codec.encode(gradient)), (std::vector<float>{1, 1, 1, 1, -1}));
}

template <class C>
void expect_votes_as_counted(std::size_t voters, std::size_t n) {
  placed<C> codec(n);
  const std::size_t bytes = codec.policy.wire_bytes(n);
  const std::size_t stride = round_up(bytes, 64);
  std::vector<std::byte> payloads(voters * stride);
  std::vector<double> votes(n);
  for (std::size_t voter = 0; voter < voters; ++voter) {
    placed<C> worker(n);
    const auto ballot = worker.encode(gradient_of(n, static_cast<unsigned>(100 + voter)));
    std::ranges::copy(ballot, payloads.begin() + static_cast<std::ptrdiff_t>(voter * stride));
    const auto signs = unpacked(words_of(ballot), n);
    for (std::size_t i = 0; i < n; ++i) {
      votes[i] += signs[i];
    }
  }
  const payload_row ballots{payloads.data(), stride, voters, bytes};
  std::vector<std::byte> elected(bytes);
  inline_queue queue;
  codec.policy.vote(queue, ballots, wire{elected.data(), elected.size()});
  EXPECT_EQ(words_of(elected), published_layout(votes)) << voters << " voters, n=" << n;
  codec.policy.vote(queue, ballots, wire{payloads.data(), bytes});
  payloads.resize(bytes);
  EXPECT_EQ(payloads, elected) << "the first ballot may take the result";
}

TEST(sign, elects_the_majority_and_a_tie_is_positive) {
  for (std::size_t voters = 1; voters <= 17; ++voters) {
    for (const std::size_t n : {1u, 33u, 2048u, 4099u}) {
      expect_votes_as_counted<compression::sign>(voters, n);
    }
  }
  expect_votes_as_counted<compression::sign>(100, 77);
  expect_votes_as_counted<compression::signum>(4, 77);
}

/// Compares every voter's words, and the majority of the first voters, with the program's.
TEST(sign, says_word_for_word_what_its_program_says) {
  constexpr std::size_t n = 333;
  placed<compression::sign> codec(n);
  std::vector<std::byte> cast;
  for (std::size_t voter = 0; voter < test::ballots_of_program.size(); ++voter) {
    const auto ballot = codec.encode(gradient_in_512ths(n, voter));
    EXPECT_EQ(words_of(ballot), test::ballots_of_program[voter]) << voter;
    cast.insert(cast.end(), ballot.begin(), ballot.end());
    const payload_row all{cast.data(), ballot.size(), voter + 1, ballot.size()};
    std::vector<std::byte> elected(ballot.size());
    inline_queue queue;
    codec.policy.vote(queue, all, wire{elected.data(), elected.size()});
    EXPECT_EQ(words_of(elected), test::elected_by_program[voter]) << voter;
    if (voter == 3) {
      std::string signs;
      for (const float each : codec.decode(elected)) {
        signs += each == 1.0f ? '+' : each == -1.0f ? '-' : '?';
      }
      EXPECT_EQ(signs, test::elected_by_four);
    }
  }
}

TEST(sign, says_of_odd_values_what_its_program_says) {
  constexpr float least = std::numeric_limits<float>::denorm_min();
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr float odd[] = {
      0, -0.0f, least, -least, infinity, -infinity, std::numeric_limits<float>::quiet_NaN(), 1, -1};
  std::vector<float> gradient(70);
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    gradient[i] = odd[i % std::size(odd)];
  }
  placed<compression::sign> codec(gradient.size());
  EXPECT_EQ(words_of(codec.encode(gradient)), test::odd_ballot_of_program);
}

TEST(sign, under_error_feedback_says_what_efsignum_says) {
  placed<compression::error_feedback<compression::sign>> codec(74);
  for (std::size_t step = 0; step < test::words_of_efsignum.size(); ++step) {
    EXPECT_EQ(words_of(codec.encode(gradient_in_512ths(74, 2 * step))),
              test::words_of_efsignum[step])
        << step;
  }
  EXPECT_TRUE(std::ranges::equal(codec.row(0), test::residual_of_efsignum));
}

TEST(signum, packs_the_sign_of_its_momentum) {
  constexpr std::size_t n = 1003;
  for (const double beta : {0.9, 0.5, 0.0}) {
    placed<compression::signum> codec(n, {.beta = beta});
    std::vector<double> momentum(n);
    for (unsigned step = 0; step < 20; ++step) {
      const auto gradient = gradient_of(n, step);
      const auto signs = codec.decode(codec.encode(gradient));
      for (std::size_t i = 0; i < n; ++i) {
        momentum[i] = beta * momentum[i] + (1 - beta) * gradient[i];
        ASSERT_NEAR(codec.row(0)[i], momentum[i], 1e-6) << "beta " << beta;
        if (std::fabs(momentum[i]) > 1e-6) {
          ASSERT_EQ(signs[i], momentum[i] < 0 ? -1 : 1) << "beta " << beta << ", element " << i;
        }
      }
    }
  }
}

/// beta and 1 - beta are rounded to floats separately, as torch's
/// `mul_(beta).add_(g, alpha=1 - beta)` does; 1 - float(beta) is another float for most betas.
TEST(signum, remembers_bit_for_bit_what_both_factors_say) {
  constexpr std::size_t n = 1003;
  for (const double beta : {0.9, 0.99, 0.3, 0.5, 0.0}) {
    const auto keep = static_cast<float>(beta);
    const auto take = static_cast<float>(1 - beta);
    placed<compression::signum> codec(n, {.beta = beta});
    std::vector<float> momentum(n);
    for (unsigned step = 0; step < 20; ++step) {
      const auto gradient = gradient_of(n, step);
      const auto payload = codec.encode(gradient);
      for (std::size_t i = 0; i < n; ++i) {
        const float kept = keep * momentum[i];
        const float taken = take * gradient[i];
        momentum[i] = kept + taken;
      }
      ASSERT_TRUE(std::ranges::equal(codec.row(0), momentum)) << "beta " << beta;
      ASSERT_EQ(words_of(payload), published_layout(doubles(momentum))) << "beta " << beta;
    }
  }
}

TEST(signum, remembers_and_says_bit_for_bit_what_its_program_does) {
  placed<compression::signum> codec(74, {.beta = 0.9});
  for (std::size_t step = 0; step < test::momentum_ballots_of_program.size(); ++step) {
    EXPECT_EQ(words_of(codec.encode(gradient_in_512ths(74, 4 * step))),
              test::momentum_ballots_of_program[step])
        << step;
  }
  EXPECT_TRUE(std::ranges::equal(codec.row(0), test::momenta_of_program));
}

TEST(signum, has_no_momentum_on_the_way_back) {
  const compression::signum policy({.beta = 0.9});
  static_assert(std::is_same_v<decltype(tutti::relay(policy)), compression::sign>);
  EXPECT_EQ(relay(policy).wire_bytes(99), policy.wire_bytes(99));
}

TEST(signum, refuses_a_beta_that_never_forgets) {
  for (const double beta : {1.0, -0.1, std::nan("")}) {
    EXPECT_THROW(compression::signum({.beta = beta}), usage_error) << beta;
  }
}

TEST(scaled_sign, sends_the_mean_magnitude_and_the_signs) {
  for (const std::size_t n : {1u, 31u, 33u, 1000u, 4099u, 300'007u}) {
    const auto gradient = gradient_of(n, 2);
    placed<compression::scaled_sign> codec(n);
    const auto payload = codec.encode(gradient);
    double magnitude = 0;
    for (const float each : gradient) {
      magnitude += std::fabs(each);
    }
    magnitude /= static_cast<double>(n);
    EXPECT_EQ(words_of(payload, sizeof(float)), published_layout(doubles(gradient)));
    const auto decoded = codec.decode(payload);
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_NEAR(decoded[i], gradient[i] < 0 ? -magnitude : magnitude, 1e-7 * magnitude) << i;
    }
  }
}

TEST(norm_scaled_sign, sends_the_root_mean_square_and_the_signs) {
  for (const std::size_t n : {1u, 31u, 33u, 1000u, 4099u, 300'007u}) {
    const auto gradient = gradient_of(n, 2);
    placed<compression::norm_scaled_sign> codec(n);
    const auto payload = codec.encode(gradient);
    double squares = 0;
    for (const float each : gradient) {
      squares += static_cast<double>(each) * static_cast<double>(each);
    }
    const double scale = std::sqrt(squares / static_cast<double>(n));
    EXPECT_EQ(words_of(payload, sizeof(float)), published_layout(doubles(gradient)));
    const auto decoded = codec.decode(payload);
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_NEAR(decoded[i], gradient[i] < 0 ? -scale : scale, 1e-7 * scale) << i;
    }
  }
}

/// The squares of these magnitudes are no finite floats other than 0.
TEST(norm_scaled_sign, has_a_scale_for_the_largest_and_the_least) {
  for (const float magnitude : {1e-45f, 1e-30f, 3e38f}) {
    placed<compression::norm_scaled_sign> codec(3);
    const std::vector<float> gradient{magnitude, -magnitude, magnitude};
    EXPECT_EQ(codec.decode(codec.encode(gradient)), gradient);
  }
}

TEST(scaled_sign, shows_a_gradient_that_is_not_finite) {
  std::vector<float> gradient(40, 1.0f);
  gradient[17] = std::nanf("");
  placed<compression::scaled_sign> codec(40);
  EXPECT_TRUE(std::isnan(codec.decode(codec.encode(gradient))[0]));
}

/// The program measures its residuals in steps: they are the rate times what is sent and kept here.
/// Its sums of magnitudes are in another order.
TEST(scaled_sign, is_ef_sign_sgds_program_under_a_rate_that_changes) {
  constexpr std::size_t n = 45;
  placed<compression::rescaled_error_feedback<compression::scaled_sign>> codec(n);
  inline_queue queue;
  float rate = test::ef_sign_sgd_steps[0].learning_rate;
  for (std::size_t step = 0; step < test::ef_sign_sgd_steps.size(); ++step) {
    const test::ef_sign_sgd_step& its = test::ef_sign_sgd_steps[step];
    codec.policy.rescale(queue, codec.where(), n, rate / its.learning_rate);
    rate = its.learning_rate;
    const auto sent = codec.decode(codec.encode(gradient_in_512ths(n, step)));
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_NEAR(rate * sent[i], its.signs[i] == '-' ? -its.scale : its.scale, 1e-6)
          << "step " << step << ", element " << i;
      if (step % 2 == 1) {
        ASSERT_NEAR(rate * codec.row(0)[i], test::ef_sign_sgd_memories[step / 2][i], 1e-6)
            << "step " << step << ", element " << i;
      }
    }
  }
}

float scale_of(const std::vector<std::byte>& payload) {
  float scale = 0;
  std::memcpy(&scale, payload.data(), sizeof scale);
  return scale;
}

/// Two ends that keep residuals: workers of a whole chunk, and owners of equal parts of it.
template <class C>
struct both_ends {
  both_ends(std::size_t elements, std::size_t parts)
      : workers(3, placed<C>(elements)), owners(parts, placed<C>(elements / parts)) {}

  void rescale(float factor) {
    inline_queue queue;
    for (auto* const end : {&workers, &owners}) {
      for (placed<C>& each : *end) {
        each.policy.rescale(queue, each.where(), each.row(0).size(), factor);
      }
    }
  }

  /// Returns the mean that arrives for gradients by step and rank; `looks` is called with every
  /// worker's payload.
  template <class Looks>
  std::vector<float> mean(std::size_t step, Looks looks) {
    std::vector<float> sum(workers[0].row(0).size());
    for (std::size_t rank = 0; rank < 3; ++rank) {
      const auto payload = workers[rank].encode(gradient_in_512ths(sum.size(), 3 * step + rank));
      looks(rank, payload);
      const auto sent = workers[rank].decode(payload);
      for (std::size_t i = 0; i < sum.size(); ++i) {
        sum[i] += sent[i] / 3;
      }
    }
    return sum;
  }

  std::vector<placed<C>> workers;
  std::vector<placed<C>> owners;
};

void expect_near(std::span<const float> values, const std::vector<float>& expected) {
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(values[i], expected[i], 2e-6) << i;
  }
}

/// Words are equal; scales and residuals agree up to the rounding of sums in another order.
TEST(scaled_sign, is_zhengs_program_at_both_ends_under_a_rate_that_changes) {
  both_ends<compression::rescaled_error_feedback<compression::scaled_sign>> ends(74, 1);
  float rate = test::dist_ef_sgd_steps()[0].learning_rate;
  for (std::size_t step = 0; step < test::dist_ef_sgd_steps().size(); ++step) {
    const test::dist_ef_sgd_step& its = test::dist_ef_sgd_steps()[step];
    ends.rescale(rate / its.learning_rate);
    rate = its.learning_rate;
    const auto mean = ends.mean(step, [&](std::size_t rank, const auto& payload) {
      EXPECT_EQ(words_of(payload, sizeof(float)), its.sent[rank]) << "step " << step;
      EXPECT_NEAR(scale_of(payload), its.scales[rank], 1e-6) << "step " << step;
    });
    const auto payload = ends.owners[0].encode(mean);
    EXPECT_EQ(words_of(payload, sizeof(float)), its.mean) << "step " << step;
    EXPECT_NEAR(scale_of(payload), its.mean_scale, 1e-6) << "step " << step;
  }
  expect_near(ends.workers[0].row(0), test::dist_ef_sgd_worker_error);
  expect_near(ends.owners[0].row(0), test::dist_ef_sgd_server_error);
}

/// Returns the signs in hexadecimal. A byte's top bit is its first element, and is set where that
/// is not negative.
std::string bits_in_hex(std::span<const float> values) {
  std::vector<std::byte> bytes(values.size() / 8);
  for (std::size_t i = 0; i < values.size(); ++i) {
    bytes[i / 8] |= std::byte(values[i] < 0 ? 0 : 0x80u >> i % 8);
  }
  return in_hex(bytes);
}

/// A worker has one scale for all that it sends, as in DeepSpeed. DeepSpeed's norms are sums of
/// floats, so scales and residuals agree up to their rounding; signs are equal.
TEST(norm_scaled_sign, is_deepspeeds_exchange_at_both_ends) {
  both_ends<compression::error_feedback<compression::norm_scaled_sign>> ends(72, 3);
  for (std::size_t step = 0; step < test::deepspeed_exchanges.size(); ++step) {
    const test::deepspeed_exchange& its = test::deepspeed_exchanges[step];
    const auto mean = ends.mean(step, [&](std::size_t rank, const auto& payload) {
      EXPECT_EQ(bits_in_hex(ends.workers[rank].decode(payload)), its.sent[rank]) << step;
      EXPECT_NEAR(scale_of(payload), its.scales[rank], 1e-6) << step;
    });
    std::string sent;
    for (std::size_t owner = 0; owner < 3; ++owner) {
      const auto payload = ends.owners[owner].encode(std::span(mean).subspan(24 * owner, 24));
      sent += bits_in_hex(ends.owners[owner].decode(payload));
      EXPECT_NEAR(scale_of(payload), its.mean_scales[owner], 1e-6) << step;
    }
    EXPECT_EQ(sent, its.mean) << step;
  }
  for (std::size_t rank = 0; rank < 3; ++rank) {
    expect_near(ends.workers[rank].row(0), test::deepspeed_worker_errors[rank]);
    expect_near(ends.owners[rank].row(0), test::deepspeed_server_errors[rank]);
  }
}

}  // namespace
}  // namespace tutti
