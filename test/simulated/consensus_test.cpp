// How near models come to each other. Without gradients they approach as fast as the mixing matrix
// says, and with gradients up to a distance that depends on the learning rate.
#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <numbers>
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

std::size_t at(int index) { return static_cast<std::size_t>(index); }

/// The elements of a model, which do not influence each other.
constexpr int elements = 3;
using model = std::array<double, elements>;
/// The models of all ranks.
using models = std::vector<model>;
/// The models after each step.
using history = std::vector<models>;

/// Ranks step at the same time, or one after the other, so that it is known which models a rank
/// finds.
enum class turns { together, actives_first };

/// Returns when in a step a rank has its turn: first the ranks of even number, then the others.
double turn_of(int rank, int ranks) { return rank % 2 * ((ranks + 1) / 2) + rank / 2; }

/// Returns the value to which a rank's first gradient, or every one, leads.
double goal(int rank, int element) {
  return std::sin(1.0 + 7.0 * rank + 3.0 * element) * (1 + element);
}

enum class gradients { first, all };

template <class Strategy>
task rank_of(transport::simulated& world, engine_options<Strategy> set, turns how, gradients which,
             float rate, history& seen) {
  arena memory(std::vector<arena::declaration>{{"model", elements}});
  auto engine =
      make_engine<Strategy>(world, memory.tensors(), optimizer::sgd{.learning_rate = rate}, set);
  co_await engine.started();
  const int rank = world.rank();
  for (std::size_t step = 0; step < seen.size(); ++step) {
    if (how == turns::actives_first) {
      const seconds turn =
          1 + static_cast<double>(step) * world.size() + turn_of(rank, world.size());
      co_await world.sleep(turn - world.now());
    }
    for (int i = 0; i < elements; ++i) {
      const bool any = which == gradients::all || step == 0;
      memory.gradients()[at(i)] =
          any ? memory.parameters()[at(i)] - static_cast<float>(goal(rank, i)) : 0.0f;
    }
    engine.ready(tensor_id(0));
    co_await engine.arrival(tensor_id(0));
    for (int i = 0; i < elements; ++i) {
      seen[step][at(rank)][at(i)] = memory.parameters()[at(i)];
    }
  }
  co_await engine.close();
}

template <class Architecture>
history run(int ranks, std::size_t steps, options_of<Architecture> set, turns how = turns::together,
            gradients which = gradients::first, float rate = 1) {
  history seen(steps, models(at(ranks)));
  using strategy = compose<Architecture>;
  engine_options<strategy> options;
  options.architecture = set;
  transport::run_simulated(ranks, transport::link{1.25e9, 50e-6}, [&](transport::simulated& world) {
    return rank_of<strategy>(world, options, how, which, rate, seen);
  });
  return seen;
}

double sum_of(const models& all, int element) {
  double sum = 0;
  for (const model& each : all) {
    sum += each[at(element)];
  }
  return sum;
}
/// Returns the squared distance of the models to their mean.
double square(const models& all) {
  double sum = 0;
  for (int i = 0; i < elements; ++i) {
    const double mean = sum_of(all, i) / static_cast<double>(all.size());
    for (const model& each : all) {
      sum += (each[at(i)] - mean) * (each[at(i)] - mean);
    }
  }
  return sum;
}
double distance(const models& all) { return std::sqrt(square(all)); }

// ---- a matrix that is the same in every step

/// Returns the second largest magnitude of the eigenvalues of a circulant matrix in which each rank
/// and those so many places ahead have equal shares. The eigenvalues are the Fourier transform of a
/// row.
double contraction_of(int ranks, const std::vector<int>& ahead) {
  double largest = 0;
  for (int k = 1; k < ranks; ++k) {
    std::complex<double> sum = 1;
    for (const int each : ahead) {
      sum += std::polar(1.0, 2 * std::numbers::pi * k * each / ranks);
    }
    largest = std::max(largest, std::abs(sum) / static_cast<double>(1 + ahead.size()));
  }
  return largest;
}

/// Expects distances of at most the first distance times the contraction for each step, up to the
/// rounding of floats.
void contracts(const history& seen, double contraction, int ranks) {
  const double first = distance(seen[0]);
  ASSERT_GT(first, 0.1);
  for (std::size_t t = 1; t < seen.size(); ++t) {
    EXPECT_LE(distance(seen[t]), std::pow(contraction, t) * first + 1e-5)
        << ranks << " ranks after " << t << " steps";
  }
}

TEST(Consensus, GossipContractsAsItsMatrix) {
  using architecture::topology;
  for (int ranks = 2; ranks <= 9; ++ranks) {
    const double ring =
        contraction_of(ranks, ranks == 2 ? std::vector{1} : std::vector{1, ranks - 1});
    const auto on_a_ring = run<architecture::gossip>(ranks, 12, {.topology = topology::ring});
    contracts(on_a_ring, ring, ranks);
    // Convergence is as slow as the slowest component of the first models allows.
    if (ranks >= 6) {
      EXPECT_GT(distance(on_a_ring.back()), 0.1 * std::pow(ring, 11) * distance(on_a_ring[0]));
    }
    std::vector<int> powers;
    for (int ahead = 1; ahead < ranks; ahead *= 2) {
      powers.push_back(ahead);
    }
    contracts(run<architecture::gossip>(ranks, 12, {.topology = topology::exponential}),
              contraction_of(ranks, powers), ranks);
  }
}

TEST(Consensus, ModelsThatAreDrawnToTheMeanContractByTheRest) {
  for (const double alpha : {0.1, 0.5}) {
    const auto seen = run<architecture::model_averaging<>>(4, 12, {.alpha = alpha});
    contracts(seen, 1 - alpha, 4);
    EXPECT_GT(distance(seen.back()), 0.999 * std::pow(1 - alpha, 11) * distance(seen[0]));
  }
}

/// With a power of two of ranks, the one-peer exponential graph makes the mean in log2 of that many
/// steps.
TEST(Consensus, PushSumMeetsAfterAsManyStepsAsTurns) {
  for (const int turns_of_all : {1, 2, 3}) {
    const auto seen = run<architecture::push_sum>(1 << turns_of_all, 8, {});
    EXPECT_LT(distance(seen[at(turns_of_all)]), 1e-5);
  }
}

/// A rank that receives more often than others would count for more without its weight.
TEST(Consensus, PushSumComesToTheMeanAlsoWhereSomeReceiveMore) {
  for (int ranks = 2; ranks <= 7; ++ranks) {
    const auto seen = run<architecture::push_sum>(
        ranks, 100, {.receiver = architecture::receiver::random, .seed = 7});
    for (int i = 0; i < elements; ++i) {
      double mean = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        mean += goal(rank, i) / ranks;
      }
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_NEAR(seen.back()[at(rank)][at(i)], mean, 1e-4) << rank << " of " << ranks;
      }
    }
  }
}

// ---- peers drawn at random

/// A possible partner of a rank, and its probability. If it is the rank itself, there is no
/// partner.
struct partner {
  int peer;
  double probability;
};
/// Whether averaging changes one or both of the ranks.
enum class averaging { moves_one, moves_both };

/// The mean and second moment of all ranks' models of one element.
struct moments {
  explicit moments(std::size_t ranks) : mean(ranks), square(ranks, std::vector<double>(ranks)) {}

  /// Ranks `one` and `other` take their mean, which multiplies x by a matrix. Updates the moments
  /// of x accordingly.
  void average(std::size_t one, std::size_t other, averaging how) {
    const auto both = [&](auto value) {  // of each row, or column
      const double middle = (value(one) + value(other)) / 2;
      value(one) = middle;
      if (how == averaging::moves_both) {
        value(other) = middle;
      }
    };
    both([this](std::size_t i) -> double& { return mean[i]; });
    for (std::size_t j = 0; j < mean.size(); ++j) {
      both([&](std::size_t i) -> double& { return square[i][j]; });
    }
    for (std::size_t i = 0; i < mean.size(); ++i) {
      both([&](std::size_t j) -> double& { return square[i][j]; });
    }
  }
  void move(std::size_t rank, double by) {
    for (std::size_t j = 0; j < mean.size(); ++j) {
      square[rank][j] += by * mean[j];
      square[j][rank] += by * mean[j];
    }
    square[rank][rank] += by * by;
    mean[rank] += by;
  }
  void add(const moments& other, double share) {
    for (std::size_t i = 0; i < mean.size(); ++i) {
      mean[i] += share * other.mean[i];
      for (std::size_t j = 0; j < mean.size(); ++j) {
        square[i][j] += share * other.square[i][j];
      }
    }
  }
  /// Returns the expected square of the distance to the mean.
  double distance() const {
    double own = 0;
    double all = 0;
    for (std::size_t i = 0; i < mean.size(); ++i) {
      own += square[i][i];
      for (const double each : square[i]) {
        all += each;
      }
    }
    return own - all / static_cast<double>(mean.size());
  }

  std::vector<double> mean;
  std::vector<std::vector<double>> square;
};

/// Returns the expected squared distances after each step, for ranks that take turns.
template <class Partners>
std::vector<double> expected_squares(int ranks, std::size_t steps, averaging how,
                                     Partners partners_of) {
  std::vector<double> all(steps);
  for (int i = 0; i < elements; ++i) {
    moments now(at(ranks));
    for (std::size_t step = 0; step < steps; ++step) {
      for (int turn = 0; turn < ranks; ++turn) {
        int rank = 0;
        while (turn_of(rank, ranks) != turn) {
          ++rank;
        }
        moments next(at(ranks));
        for (const partner& each : partners_of(rank)) {
          moments after = now;
          if (each.peer != rank) {
            after.average(at(rank), at(each.peer), how);
          }
          // The first gradient is that of the rank's model before it averaged, which was 0.
          after.move(at(rank), step == 0 ? goal(rank, i) : 0);
          next.add(after, each.probability);
        }
        now = next;
      }
      all[step] += now.distance();
    }
  }
  return all;
}

template <class Architecture, class Partners>
void contracts_in_the_mean(int ranks, averaging how, Partners partners_of) {
  constexpr std::size_t steps = 4;  // for later steps the mean over so many seeds is less accurate
  constexpr int seeds = 1000;
  std::vector<double> mean(steps);
  for (int seed = 1; seed <= seeds; ++seed) {
    options_of<Architecture> set;
    set.seed = static_cast<std::uint64_t>(seed);
    const auto seen = run<Architecture>(ranks, steps, set, turns::actives_first);
    for (std::size_t step = 0; step < steps; ++step) {
      mean[step] += square(seen[step]) / seeds;
    }
  }
  const auto expected = expected_squares(ranks, steps, how, partners_of);
  for (std::size_t step = 0; step < steps; ++step) {
    EXPECT_NEAR(mean[step], expected[step], 0.05 * expected[step]) << "step " << step;
  }
}

/// A rank draws any other rank, and the next one if it draws itself.
TEST(Consensus, RandomPairsContractAsTheirExpectedMatrix) {
  constexpr int ranks = 4;
  const auto any_other = [](int rank) {
    std::vector<partner> all;
    for (int draw = 0; draw < ranks; ++draw) {
      all.push_back({draw == rank ? (rank + 1) % ranks : draw, 1.0 / ranks});
    }
    return all;
  };
  contracts_in_the_mean<architecture::pair_averaging>(ranks, averaging::moves_one, any_other);
}
TEST(Consensus, ActiveAndPassiveRanksContractAsTheirExpectedMatrix) {
  constexpr int ranks = 5;
  const auto any_passive = [](int rank) {
    std::vector<partner> all;
    for (int passive = 1; passive < ranks && rank % 2 == 0; passive += 2) {
      all.push_back({passive, 1.0 / (ranks / 2)});
    }
    return rank % 2 == 0 ? all : std::vector{partner{rank, 1}};
  };
  contracts_in_the_mean<architecture::bipartite_averaging>(ranks, averaging::moves_both,
                                                           any_passive);
}

/// One half of a model is sent and half of another arrives, so the sum is preserved exactly.
TEST(Consensus, ActiveAndPassiveRanksKeepTheirSum) {
  const auto seen = run<architecture::bipartite_averaging>(5, 8, {}, turns::actives_first);
  for (std::size_t step = 1; step < seen.size(); ++step) {
    for (int i = 0; i < elements; ++i) {
      EXPECT_NEAR(sum_of(seen[step], i), sum_of(seen[0], i), 1e-5) << step;
    }
  }
}

/// The model to which a rank moves was requested in the step before.
TEST(Consensus, PairsThatWereAskedForAheadAreThoseOfTheStepBefore) {
  constexpr int ranks = 4;
  const auto seen = run<architecture::delayed<architecture::pair_averaging>>(
      ranks, 6, {.seed = 3}, turns::actives_first, gradients::all, 0.25f);
  models x(at(ranks));
  models asked = x;
  for (std::size_t step = 0; step < seen.size(); ++step) {
    for (const int rank : {0, 2, 1, 3}) {
      for (int i = 0; i < elements; ++i) {
        double& mine = x[at(rank)][at(i)];
        const double gradient = mine - goal(rank, i);
        mine = step == 0 ? mine : 0.5 * mine + 0.5 * asked[at(rank)][at(i)];
        mine -= 0.25 * gradient;
      }
      asked[at(rank)] = x[at(architecture::pair_of(3, rank, step, ranks))];
    }
    for (int rank = 0; rank < ranks; ++rank) {
      for (int i = 0; i < elements; ++i) {
        EXPECT_NEAR(seen[step][at(rank)][at(i)], x[at(rank)][at(i)], 1e-5) << step;
      }
    }
  }
}

// ---- with gradients

/// With half the learning rate, half the distance remains.
template <class Architecture>
void settles_at(turns how = turns::together, options_of<Architecture> set = {}) {
  const auto left = [&](float rate) {
    const auto seen = run<Architecture>(5, 400, set, how, gradients::all, rate);
    double sum = 0;
    for (std::size_t step = 300; step < seen.size(); ++step) {
      sum += distance(seen[step]) / 100;
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
