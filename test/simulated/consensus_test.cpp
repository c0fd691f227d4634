// How near models come to each other: without gradients as fast as the mixing matrix says, with
// gradients to a distance that the learning rate decides.
#include <Eigen/Dense>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <vector>

#include "support/training.hpp"
#include "tutti/architecture/bipartite_averaging.hpp"
#include "tutti/architecture/delayed.hpp"
#include "tutti/architecture/gossip.hpp"
#include "tutti/architecture/model_averaging.hpp"
#include "tutti/architecture/pair_averaging.hpp"
#include "tutti/architecture/push_sum.hpp"

namespace tutti::test {
namespace {

using Eigen::MatrixXd;
using Eigen::VectorXd;

/// What ranks' models are of, each element apart.
constexpr int elements = 3;
/// A rank's models, as columns, after each step.
using history = std::vector<MatrixXd>;

/// Ranks step at once, or one after the other: then it is known whose model a rank finds.
enum class turns { together, actives_first };

/// In which place of a step a rank has its turn: those of even number, then the others.
double turn_of(int rank, int ranks) { return rank % 2 * ((ranks + 1) / 2) + rank / 2; }

/// Where a rank's first gradient, or every one, takes it to.
double goal(int rank, int element) {
  return std::sin(1.0 + 7.0 * rank + 3.0 * element) * (1 + element);
}

enum class gradients { first, all };

template <class Strategy>
task rank_of(transport::simulated& world, engine_options<Strategy> set, turns how, gradients which,
             float rate, history& models) {
  arena memory(std::vector<arena::declaration>{{"model", elements}});
  auto engine =
      make_engine<Strategy>(world, memory.tensors(), optimizer::sgd{.learning_rate = rate}, set);
  co_await engine.started();
  const int rank = world.rank();
  for (std::size_t step = 0; step < models.size(); ++step) {
    if (how == turns::actives_first) {
      const seconds turn =
          1 + static_cast<double>(step) * world.size() + turn_of(rank, world.size());
      co_await world.sleep(turn - world.now());
    }
    for (int i = 0; i < elements; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const bool any = which == gradients::all || step == 0;
      memory.gradients()[at] =
          any ? memory.parameters()[at] - static_cast<float>(goal(rank, i)) : 0.0f;
    }
    engine.ready(tensor_id(0));
    co_await engine.arrival(tensor_id(0));
    for (int i = 0; i < elements; ++i) {
      models[step](i, rank) = memory.parameters()[static_cast<std::size_t>(i)];
    }
  }
  co_await engine.close();
}

template <class Architecture>
history run(int ranks, std::size_t steps, options_of<Architecture> set, turns how = turns::together,
            gradients which = gradients::first, float rate = 1) {
  history models(steps, MatrixXd::Zero(elements, ranks));
  using strategy = compose<Architecture>;
  engine_options<strategy> options;
  options.architecture = set;
  transport::run_simulated(ranks, transport::link{1.25e9, 50e-6}, [&](transport::simulated& world) {
    return rank_of<strategy>(world, options, how, which, rate, models);
  });
  return models;
}

double distance(const MatrixXd& models) {
  const VectorXd mean = models.rowwise().mean();
  return (models.colwise() - mean).norm();
}

// ---- a matrix that is the same in every step

/// The second largest singular value of a matrix whose rows and columns add up to 1.
double contraction_of(const MatrixXd& w) {
  const int ranks = static_cast<int>(w.rows());
  const MatrixXd rest = w - MatrixXd::Constant(ranks, ranks, 1.0 / ranks);
  return Eigen::JacobiSVD<MatrixXd>(rest).singularValues()[0];
}

MatrixXd circulant(int ranks, const std::vector<int>& ahead) {
  MatrixXd w = MatrixXd::Identity(ranks, ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    for (const int each : ahead) {
      w((rank + each) % ranks, rank) = 1;
    }
  }
  return w / w.row(0).sum();
}

/// Distances are at most what the matrix leaves of the first, beside what floats round.
void contracts(const history& models, double contraction, int ranks) {
  const double first = distance(models[0]);
  ASSERT_GT(first, 0.1);
  for (std::size_t t = 1; t < models.size(); ++t) {
    EXPECT_LE(distance(models[t]), std::pow(contraction, t) * first + 1e-5)
        << ranks << " ranks after " << t << " steps";
  }
}

TEST(Consensus, GossipContractsAsItsMatrix) {
  using architecture::topology;
  for (int ranks = 2; ranks <= 9; ++ranks) {
    const double ring = contraction_of(circulant(ranks, {1, ranks - 1}));
    const auto on_a_ring = run<architecture::gossip>(ranks, 12, {.topology = topology::ring});
    contracts(on_a_ring, ring, ranks);
    // No faster than the slowest of what the first models hold, which is as long as they allow.
    if (ranks >= 6) {
      EXPECT_GT(distance(on_a_ring.back()), 0.1 * std::pow(ring, 11) * distance(on_a_ring[0]));
    }
    std::vector<int> powers;
    for (int ahead = 1; ahead < ranks; ahead *= 2) {
      powers.push_back(ahead);
    }
    contracts(run<architecture::gossip>(ranks, 12, {.topology = topology::exponential}),
              contraction_of(circulant(ranks, powers)), ranks);
  }
}

TEST(Consensus, ModelsThatAreDrawnToTheMeanContractByTheRest) {
  for (const double alpha : {0.1, 0.5}) {
    const auto models = run<architecture::model_averaging<>>(4, 12, {.alpha = alpha});
    contracts(models, 1 - alpha, 4);
    EXPECT_GT(distance(models.back()), 0.999 * std::pow(1 - alpha, 11) * distance(models[0]));
  }
}

/// Of a power of two of ranks the one-peer exponential graph makes the mean in so many steps.
TEST(Consensus, PushSumMeetsAfterAsManyStepsAsTurns) {
  for (const int turns_of_all : {1, 2, 3}) {
    const auto models = run<architecture::push_sum>(1 << turns_of_all, 8, {});
    const auto met = static_cast<std::size_t>(turns_of_all);
    EXPECT_LT(distance(models[met]), 1e-5);
  }
}

/// Who receives more often than others would count for more, but for its weight.
TEST(Consensus, PushSumComesToTheMeanAlsoWhereSomeReceiveMore) {
  for (int ranks = 2; ranks <= 7; ++ranks) {
    const auto models = run<architecture::push_sum>(
        ranks, 100, {.receiver = architecture::receiver::random, .seed = 7});
    for (int i = 0; i < elements; ++i) {
      double mean = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        mean += goal(rank, i) / ranks;
      }
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_NEAR(models.back()(i, rank), mean, 1e-4) << rank << " of " << ranks;
      }
    }
  }
}

// ---- peers drawn at random

/// Mean and second moment of models of one element.
struct moments {
  VectorXd mean;
  MatrixXd square;

  explicit moments(int ranks) : mean(VectorXd::Zero(ranks)), square(MatrixXd::Zero(ranks, ranks)) {}

  /// Models become `by` times what they were, plus `add`, with this probability.
  void take(const moments& before, const MatrixXd& by, const VectorXd& add, double probability) {
    const VectorXd moved = by * before.mean;
    mean += probability * (moved + add);
    square += probability * (by * before.square * by.transpose() + moved * add.transpose() +
                             add * moved.transpose() + add * add.transpose());
  }
};

/// Whom a rank averages with, with which probability, and what that makes of all models.
struct meeting {
  MatrixXd by;
  double probability;
};

/// Expected squared distances after each step, of ranks that take their turns.
template <class Meetings>
std::vector<double> expected_squares(int ranks, std::size_t steps, Meetings meetings_of) {
  std::vector<double> all(steps);
  for (int i = 0; i < elements; ++i) {
    moments now(ranks);
    for (std::size_t step = 0; step < steps; ++step) {
      for (int turn = 0; turn < ranks; ++turn) {
        int rank = 0;
        while (turn_of(rank, ranks) != turn) {
          ++rank;
        }
        moments next(ranks);
        for (const meeting& each : meetings_of(rank)) {
          // The gradient is of where the rank stood before it met anybody, which was 0.
          VectorXd add = VectorXd::Zero(ranks);
          add[rank] = step == 0 ? goal(rank, i) : 0;
          next.take(now, each.by, add, each.probability);
        }
        now = next;
      }
      const MatrixXd rest =
          MatrixXd::Identity(ranks, ranks) - MatrixXd::Constant(ranks, ranks, 1.0 / ranks);
      all[step] += (rest * now.square * rest).trace();
    }
  }
  return all;
}

template <class Architecture, class Meetings>
void contracts_in_the_mean(int ranks, Meetings meetings_of) {
  constexpr std::size_t steps = 4;  // of later ones the mean of so many seeds is not as near
  constexpr int seeds = 1000;
  std::vector<double> mean(steps);
  for (int seed = 1; seed <= seeds; ++seed) {
    options_of<Architecture> set;
    set.seed = static_cast<std::uint64_t>(seed);
    const auto models = run<Architecture>(ranks, steps, set, turns::actives_first);
    for (std::size_t step = 0; step < steps; ++step) {
      mean[step] += distance(models[step]) * distance(models[step]) / seeds;
    }
  }
  const auto expected = expected_squares(ranks, steps, meetings_of);
  for (std::size_t step = 0; step < steps; ++step) {
    EXPECT_NEAR(mean[step], expected[step], 0.05 * expected[step]) << "step " << step;
  }
}

/// Any other rank, and once more the next one, for the draw of the rank itself.
TEST(Consensus, RandomPairsContractAsTheirExpectedMatrix) {
  constexpr int ranks = 4;
  contracts_in_the_mean<architecture::pair_averaging>(ranks, [](int rank) {
    std::vector<meeting> all;
    for (int draw = 0; draw < ranks; ++draw) {
      const int peer = draw == rank ? (rank + 1) % ranks : draw;
      MatrixXd by = MatrixXd::Identity(ranks, ranks);
      by(rank, rank) = by(rank, peer) = 0.5;
      all.push_back({by, 1.0 / ranks});
    }
    return all;
  });
}
TEST(Consensus, ActiveAndPassiveRanksContractAsTheirExpectedMatrix) {
  constexpr int ranks = 5;
  contracts_in_the_mean<architecture::bipartite_averaging>(ranks, [](int rank) {
    std::vector<meeting> all;
    if (rank % 2 == 1) {
      all.push_back({MatrixXd::Identity(ranks, ranks), 1});
      return all;
    }
    for (int passive = 1; passive < ranks; passive += 2) {
      MatrixXd by = MatrixXd::Identity(ranks, ranks);
      by(rank, rank) = by(rank, passive) = by(passive, rank) = by(passive, passive) = 0.5;
      all.push_back({by, 1.0 / (ranks / 2)});
    }
    return all;
  });
}

/// Half of a model goes and half of another comes: nothing is lost or made on the way, exactly.
TEST(Consensus, ActiveAndPassiveRanksKeepTheirSum) {
  const auto models = run<architecture::bipartite_averaging>(5, 8, {}, turns::actives_first);
  for (std::size_t step = 1; step < models.size(); ++step) {
    for (int i = 0; i < elements; ++i) {
      EXPECT_NEAR(models[step].row(i).sum(), models[0].row(i).sum(), 1e-5) << step;
    }
  }
}

/// What a rank moves to was asked for in its step before.
TEST(Consensus, PairsThatWereAskedForAheadAreThoseOfTheStepBefore) {
  constexpr int ranks = 4;
  const auto models = run<architecture::delayed<architecture::pair_averaging>>(
      ranks, 6, {.seed = 3}, turns::actives_first, gradients::all, 0.25f);
  MatrixXd x = MatrixXd::Zero(elements, ranks);
  MatrixXd asked = x;
  for (std::size_t step = 0; step < models.size(); ++step) {
    for (const int rank : {0, 2, 1, 3}) {
      for (int i = 0; i < elements; ++i) {
        const double gradient = x(i, rank) - goal(rank, i);
        x(i, rank) = step == 0 ? x(i, rank) : 0.5 * x(i, rank) + 0.5 * asked(i, rank);
        x(i, rank) -= 0.25 * gradient;
      }
      asked.col(rank) = x.col(architecture::pair_of(3, rank, step, ranks));
    }
    EXPECT_LT((models[step] - x).norm(), 1e-5) << step;
  }
}

// ---- with gradients

/// Half the rate, half the distance that is left.
template <class Architecture>
void settles_at(turns how = turns::together, options_of<Architecture> set = {}) {
  const auto left = [&](float rate) {
    const auto models = run<Architecture>(5, 400, set, how, gradients::all, rate);
    double sum = 0;
    for (std::size_t step = 300; step < models.size(); ++step) {
      sum += distance(models[step]) / 100;
    }
    return sum;
  };
  const double whole = left(0.1f);
  const double half = left(0.05f);
  EXPECT_GT(whole, 0.01);
  EXPECT_GT(half, 0.35 * whole);
  EXPECT_LT(half, 0.7 * whole);
}
TEST(Consensus, WithGradientsTheRateDecidesHowNear) {
  settles_at<architecture::gossip>();
  settles_at<architecture::push_sum>();
  settles_at<architecture::model_averaging<>>(turns::together, {.alpha = 0.5});
  settles_at<architecture::pair_averaging>(turns::actives_first);
  settles_at<architecture::bipartite_averaging>(turns::actives_first);
}

}  // namespace
}  // namespace tutti::test
