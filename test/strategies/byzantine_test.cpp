// Majority votes of ranks some of which lie: which lies a majority outvotes, which a mean follows,
// and what a tie decides.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <vector>

#include "support/rule.hpp"
#include "support/training.hpp"
#include "tutti/architecture/majority_vote.hpp"
#include "tutti/compression/sign.hpp"
#include "tutti/fusion/all.hpp"
#include "tutti/strategies/mean_of_signs.hpp"
#include "tutti/strategies/sign_sgd.hpp"
#include "tutti/strategies/wfbp.hpp"

namespace tutti::test {
namespace {

constexpr int ranks = 4;
constexpr std::size_t elements = 500;

float goal(std::size_t i) { return std::sin(static_cast<float>(i)); }

/// Minimises half the squared distance from `goal`, beginning at 0. Each rank sees some noise, and
/// the last `liars` hand in their gradient times `lie`. Returns the distance of the worst element.
template <class Strategy>
float distance_after(int steps, int liars, float lie, const engine_options<Strategy>& set = {}) {
  float worst = 0;
  transport::run_ranks(ranks, [&](transport::in_process& world) {
    const std::vector<arena::declaration> model{{"x", elements}};
    arena memory(model);
    auto engine = make_engine<Strategy>(world, memory.tensors(),
                                        optimizer::sgd{.learning_rate = 1.0f / 64}, set);
    for (int step = 0; step < steps; ++step) {
      for (std::size_t i = 0; i < elements; ++i) {
        const float noise = gradient(world.rank(), step, i) / 6400;  // at most 1 / 100
        const float mine = memory.parameters()[i] - goal(i) + noise;
        memory.gradients()[i] = world.rank() < ranks - liars ? mine : lie * mine;
      }
      engine.ready(tensor_id(0));
      engine.wait();
    }
    if (world.rank() == 0) {
      for (std::size_t i = 0; i < elements; ++i) {
        worst = std::max(worst, std::fabs(memory.parameters()[i] - goal(i)));
      }
    }
  });
  return worst;
}

TEST(Byzantine, OneOfFourIsOutvotedAndTakesTheMeanAway) {
  using strategies::SignSGD;
  using strategies::WFBP;
  EXPECT_LT(distance_after<WFBP>(300, 0, 0), 0.03f);
  EXPECT_LT(distance_after<SignSGD>(300, 0, 0), 0.05f);
  EXPECT_LT(distance_after<SignSGD>(300, 1, -10), 0.05f);  // the distance of one step is 1/64
  EXPECT_GT(distance_after<WFBP>(300, 1, -10), 100.0f);
}

/// Half of the ranks lie, so every element ties. With ties that are positive it is pulled one way
/// forever; with ties by chance it stays about where it was.
TEST(Byzantine, TwoOfFourAreATie) {
  using strategies::SignSGD;
  EXPECT_GT(distance_after<SignSGD>(300, 2, -1), 3.0f);
  engine_options<SignSGD> fair;
  fair.architecture.tie = architecture::tie::by_chance;
  EXPECT_LT(distance_after<SignSGD>(300, 2, -1, fair), 2.5f);
  EXPECT_LT(distance_after<SignSGD>(300, 1, -10, fair), 0.05f);
}

/// Returns what `voters` decide for each element in one step if the first `negative` of them vote
/// -1.
std::vector<float> elected(int voters, int negative, architecture::tie tie) {
  using strategy = compose<fusion::all, compression::sign, architecture::majority_vote>;
  engine_options<strategy> set;
  set.architecture.tie = tie;
  std::vector<float> result;
  transport::run_ranks(voters, [&](transport::in_process& world) {
    const std::vector<arena::declaration> model{{"x", 20'000}};
    arena memory(model);
    auto engine = make_engine<strategy>(world, memory.tensors(), optimizer::none{}, set);
    for (float& each : memory.gradients()) {
      each = world.rank() < negative ? -1.0f : 1.0f;
    }
    engine.ready(tensor_id(0));
    engine.wait();
    if (world.rank() == voters - 1) {
      result.assign(memory.gradients().begin(), memory.gradients().end());
    }
  });
  return result;
}

double sum_of(const std::vector<float>& values) {
  double sum = 0;
  for (const float each : values) {
    sum += static_cast<double>(each);
  }
  return sum;
}

TEST(majority_vote, decides_ties_alone_by_chance) {
  using architecture::tie;
  for (int voters = 1; voters <= 5; ++voters) {
    for (int negative = 0; negative <= voters; ++negative) {
      const double published = sum_of(elected(voters, negative, tie::positive));
      EXPECT_EQ(published, 2 * negative > voters ? -20'000 : 20'000);
      const double fair = sum_of(elected(voters, negative, tie::by_chance));
      if (2 * negative == voters) {
        EXPECT_LT(std::fabs(fair), 5 * std::sqrt(20'000.0)) << "five standard deviations";
        EXPECT_NE(fair, 0) << "as even as no chance would be";
      } else {
        EXPECT_EQ(fair, published) << negative << " of " << voters;
      }
    }
  }
}

/// Returns the means that arrive at the last of `voters` ranks after each step of `passes` passes,
/// with gradients that are equal on all ranks.
template <class Strategy>
std::vector<float> came_back(int voters, unsigned passes,
                             const engine_options<Strategy>& set = {}) {
  std::vector<float> all;
  transport::run_ranks(voters, [&](transport::in_process& world) {
    const std::vector<arena::declaration> model{{"x", 37}, {"y", 5}};
    arena memory(model);
    auto counted = set;
    counted.run.accumulation = passes;
    auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer::none{}, counted);
    for (int step = 0; step < 3; ++step) {
      for (unsigned pass = 0; pass < passes; ++pass) {
        for (std::size_t i = 0; i < memory.gradients().size(); ++i) {
          const float mine = gradient(0, step, i);
          memory.gradients()[i] = pass == 0 ? mine : memory.gradients()[i] + mine;
        }
        engine.ready(tensor_id(1));
        engine.ready(tensor_id(0));
      }
      engine.wait();
      if (world.rank() == voters - 1) {
        all.insert(all.end(), memory.gradients().begin(), memory.gradients().end());
      }
    }
  });
  return all;
}

/// Bernstein et al.'s program says "the raw momentum is applied" on one node; more nodes vote.
TEST(majority_vote, believes_a_single_voter_as_published) {
  const auto momenta = [](float beta, bool voted) {
    std::vector<float> momentum(42);
    std::vector<float> all;
    for (int step = 0; step < 3; ++step) {
      for (std::size_t i = 0; i < momentum.size(); ++i) {
        const float kept = beta * momentum[i];
        const float taken =
            static_cast<float>(1 - static_cast<double>(beta)) * gradient(0, step, i);
        momentum[i] = kept + taken;
        all.push_back(!voted ? momentum[i] : momentum[i] < 0 ? -1.0f : 1.0f);
      }
    }
    return all;
  };
  using strategies::SignSGD;
  using strategies::Signum;
  engine_options<Signum> half;
  half.compression.beta = 0.5;
  EXPECT_EQ(came_back<SignSGD>(1, 1), momenta(0, false));
  EXPECT_EQ(came_back<Signum>(1, 1, half), momenta(0.5f, false));
  EXPECT_EQ(came_back<Signum>(1, 2, half), momenta(0.5f, false)) << "the mean of both passes";
  for (int voters = 2; voters <= 5; ++voters) {
    EXPECT_EQ(came_back<Signum>(voters, 1, half), momenta(0.5f, true)) << voters;
  }
  half.architecture.single = architecture::single_voter::votes;
  EXPECT_EQ(came_back<Signum>(1, 1, half), momenta(0.5f, true));
}

/// The mean of -1, 1 and 1 is a third, while their vote is 1.
TEST(Named, MeanOfSigns) {
  const auto trained_by_means = [](bool remembers) {
    std::vector<std::vector<float>> errors(3, std::vector<float>(total_elements()));
    return trained_with([&](int step, std::vector<float>& means) {
      for (std::size_t worker = 0; worker < 3; ++worker) {
        for (std::size_t i = 0; i < means.size(); ++i) {
          float& error = errors[worker][i];
          error = (remembers ? error : 0.0f) + gradient(static_cast<int>(worker), step, i);
          const float sign = error < 0 ? -1.0f : 1.0f;
          error -= sign;
          means[i] += sign / 3;
        }
      }
    });
  };
  using strategies::EFMeanOfSigns;
  using strategies::MeanOfSigns;
  const auto plain = observe<MeanOfSigns>(3);
  const auto remembering = observe<EFMeanOfSigns>(3);
  EXPECT_TRUE(all_have(trained_by_means(false))(plain.parameters));
  EXPECT_FALSE(all_have(trained_by_means(false))(remembering.parameters));
  EXPECT_TRUE(all_have(trained_by_means(true))(remembering.parameters));
  EXPECT_EQ(plain.seen.buckets, std::vector<std::size_t>{6})
      << "less than 67,108,864 elements, of more bytes";
}

}  // namespace
}  // namespace tutti::test
