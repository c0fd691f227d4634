// Ranks that keep models of their own and mix them with those of some others, each rule against its
// paper's matrices in double precision, and the errors of wrong uses. One file, because all rules
// are compared with one product of matrices.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/errors.hpp"
#include "support/oracle.hpp"
#include "support/recurrence.hpp"
#include "support/training.hpp"
#include "tutti/architecture/all_gather.hpp"
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/architecture/bipartite_averaging.hpp"
#include "tutti/architecture/delayed.hpp"
#include "tutti/architecture/diloco.hpp"
#include "tutti/architecture/elastic_averaging.hpp"
#include "tutti/architecture/gossip.hpp"
#include "tutti/architecture/local_sgd.hpp"
#include "tutti/architecture/model_averaging.hpp"
#include "tutti/architecture/push_sum.hpp"
#include "tutti/architecture/streaming_diloco.hpp"
#include "tutti/architecture/switch_at.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/compression/e3m0.hpp"
#include "tutti/compression/nesterov_momentum.hpp"
#include "tutti/compression/none.hpp"
#include "tutti/optimizer/adam.hpp"

namespace tutti::test {
namespace {

using namespace recurring;
using canonical = collective::canonical;

std::size_t at(int index) { return static_cast<std::size_t>(index); }

/// Row i holds the weights by which rank i mixes the models of all p ranks.
using matrix = std::vector<std::vector<double>>;

matrix zero(int ranks) { return matrix(at(ranks), std::vector<double>(at(ranks))); }

void multiply(const matrix& w, replicas& all) {
  std::array<double, 16> mixed{};
  for (std::size_t i = 0; i < w.size(); ++i) {
    for (std::size_t j = 0; j < w.size(); ++j) {
      mixed[i] += w[i][j] * all[j].x;
    }
  }
  for (std::size_t i = 0; i < w.size(); ++i) {
    all[i].x = mixed[i];
  }
}

// ---- gossip

/// Lian et al.: a rank and its two neighbours on the ring each have weight 1/3.
matrix of_a_ring(int ranks) {
  matrix w = zero(ranks);
  const double share = 1.0 / std::min(ranks, 3);
  for (int i = 0; i < ranks; ++i) {
    w[at(i)][at(i)] = w[at(i)][at((i + 1) % ranks)] = w[at(i)][at((i + ranks - 1) % ranks)] = share;
  }
  return w;
}
/// Ying et al.: a rank and those whose distance to it is a power of two each have weight 1 /
/// (ceil(log2 p) + 1).
matrix of_an_exponential_graph(int ranks) {
  matrix w = zero(ranks);
  const double share = 1 / (std::ceil(std::log2(ranks)) + 1);
  for (int i = 0; i < ranks; ++i) {
    w[at(i)][at(i)] = share;
    for (int ahead = 1; ahead < ranks; ahead *= 2) {
      w[at((i + ahead) % ranks)][at(i)] = share;
    }
  }
  return w;
}

TEST(Gossip, IsItsMatrixOnARingAndOnAnExponentialGraph) {
  using strategy = cut<architecture::gossip>;
  using architecture::topology;
  for (const topology which : {topology::ring, topology::exponential}) {
    auto set = options_for<strategy>();
    set.architecture.topology = which;
    equals<strategy>(
        [which](int workers) {
          const matrix w =
              which == topology::ring ? of_a_ring(workers) : of_an_exponential_graph(workers);
          for (int i = 0; i < workers; ++i) {
            double row = 0;
            double column = 0;
            for (int j = 0; j < workers; ++j) {
              row += w[at(i)][at(j)];
              column += w[at(j)][at(i)];
            }
            EXPECT_NEAR(row, 1, 1e-12);
            EXPECT_NEAR(column, 1, 1e-12);
          }
          return [w](replicas& all, int step, std::size_t element) {
            multiply(w, all);
            alone(all, step, element);
          };
        },
        set);
  }
}

// ---- SGP

/// Assran et al.: P(k), in which a rank keeps one half and sends one half to its receiver. Columns
/// add up to 1.
matrix handed(architecture::receiver which, std::uint64_t seed, int step, int ranks) {
  matrix p = zero(ranks);
  int turns = 0;
  while ((1 << turns) < ranks) {
    ++turns;
  }
  for (int i = 0; i < ranks; ++i) {
    int to = (i + 1) % ranks;
    if (which == architecture::receiver::exponential && turns > 0) {
      to = (i + (1 << (step % turns))) % ranks;
    } else if (which == architecture::receiver::random) {
      to = architecture::pair_of(seed, i, static_cast<std::uint64_t>(step), ranks);
    }
    p[at(i)][at(i)] += 0.5;
    p[at(to)][at(i)] += 0.5;
  }
  return p;
}

std::vector<double> product(const matrix& w, const std::vector<double>& x) {
  std::vector<double> result(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    for (std::size_t j = 0; j < x.size(); ++j) {
      result[i] += w[i][j] * x[j];
    }
  }
  return result;
}

TEST(PushSum, IsItsMatricesWhoeverReceives) {
  using strategy = cut<architecture::push_sum>;
  using architecture::receiver;
  for (const receiver which : {receiver::exponential, receiver::next, receiver::random}) {
    auto set = options_for<strategy>();
    set.architecture.receiver = which;
    set.architecture.seed = 5;
    equals<strategy>(
        [which](int workers) {
          std::vector<matrix> mixing;
          std::vector<std::vector<double>> weights(1, std::vector<double>(at(workers), 1));
          for (int step = 0; step < steps; ++step) {
            mixing.push_back(handed(which, 5, step, workers));
            weights.push_back(product(mixing.back(), weights.back()));
          }
          return [=](replicas& all, int step, std::size_t element) {
            for (std::size_t i = 0; i < all.size(); ++i) {
              all[i].x *= weights[at(step)][i];
            }
            alone(all, step, element);
            multiply(mixing[at(step)], all);
            for (std::size_t i = 0; i < all.size(); ++i) {
              all[i].x /= weights[at(step + 1)][i];
            }
          };
        },
        set, which == receiver::next ? std::vector{3} : std::vector{1, 2, 3, 5});
  }
}

/// Halves of halves are exact; which halves are added depends on the receivers.
TEST(PushSum, WeightsAddUpToTheRanksExactly) {
  using architecture::receiver;
  for (const receiver which : {receiver::exponential, receiver::next, receiver::random}) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      architecture::push_sum_weights weights(which, 3, ranks);
      std::vector<double> expected(at(ranks), 1);
      for (int step = 0; step <= 40; ++step) {
        const auto now = weights.before(static_cast<std::uint64_t>(step));
        double sum = 0;
        for (int i = 0; i < ranks; ++i) {
          sum += now[at(i)];
          EXPECT_EQ(now[at(i)], expected[at(i)]) << ranks << " ranks, step " << step;
        }
        EXPECT_EQ(sum, ranks);
        expected = product(handed(which, 3, step, ranks), expected);
      }
      const auto again = weights.before(7);  // asks for an earlier step again
      architecture::push_sum_weights fresh(which, 3, ranks);
      const auto once = fresh.before(7);
      EXPECT_TRUE(std::equal(again.begin(), again.end(), once.begin(), once.end()));
    }
  }
}

// ---- local SGD by a schedule, and the averaging before a switch

TEST(LocalSgd, WarmsUpBySingleStepsAndByDoubling) {
  using strategy = cut<architecture::local_sgd<canonical>>;
  using architecture::growth;
  struct schedule {
    growth how;
    int period;
    std::uint64_t warm_up;
    std::vector<int> ends;  ///< of the first nine steps, those that end in a mean
  };
  const std::vector<schedule> all{{growth::constant, 3, 4, {0, 1, 2, 3, 5, 8}},
                                  {growth::constant, 4, 100, {0, 1, 2, 3, 4, 5, 6, 7, 8}},
                                  {growth::doubling, 4, 6, {0, 1, 3, 7}},
                                  {growth::doubling, 4, 0, {3, 7}}};
  for (const schedule& each : all) {
    auto set = options_for<strategy>();
    set.architecture.period = each.period;
    set.architecture.warm_up = each.warm_up;
    set.architecture.growth = each.how;
    equals<strategy>(
        [&each](int) {
          return [&each](replicas& its, int step, std::size_t element) {
            alone(its, step, element);
            if (std::ranges::find(each.ends, step) != each.ends.end()) {
              to_the_mean_model(its, 1);
            }
          };
        },
        set, {3});
  }
}

void meet(replicas& all) {
  to_the_mean_model(all, 1);
  double sum = 0;
  for (const replica& each : all) {
    sum += each.m;
  }
  for (replica& each : all) {
    each.m = sum / static_cast<double>(all.size());
  }
}

TEST(LocalSgd, AveragesMomentaWhereItIsTold) {
  using strategy = cut<architecture::local_sgd<canonical>>;
  auto set = options_for<strategy>();
  set.architecture.period = 2;
  set.architecture.momenta = architecture::momenta::averaged;
  equals<strategy>(
      [](int) {
        return [](replicas& all, int step, std::size_t element) {
          alone(all, step, element);
          if (step % 2 == 1) {
            meet(all);
          }
        };
      },
      set);
}

/// AdaSGD's switch: from its step on all ranks' weights are equal, bit for bit.
TEST(Switch, FromDriftingModelsToEqualOnes) {
  using strategy = cut<architecture::switch_at<architecture::model_averaging<canonical>,
                                               architecture::all_reduce<canonical>>>;
  for (const int step : {0, 1, 6, 100}) {
    auto set = options_for<strategy>();
    set.architecture.step = static_cast<std::uint64_t>(step);
    equals<strategy>(
        [step](int) {
          return [step](replicas& all, int now, std::size_t element) {
            if (now >= step) {
              by_the_mean_gradient(all, now, element);
            } else if (now + 1 == step) {
              alone(all, now, element);
              meet(all);
            } else {
              to_the_mean_model(all, 0.1);
              alone(all, now, element);
            }
          };
        },
        set, step == 6 ? std::vector{1, 2, 3, 4, 5} : std::vector{3});
    const auto ended = train_in_parts<strategy>(3, 0, set).parameters;
    EXPECT_EQ(ended[0] == ended[1] && ended[1] == ended[2], step < 100);
  }
}

// ---- DiLoCo

/// Returns the recurrence of Douillard et al., with Nesterov's momentum as in PyTorch's SGD.
std::function<recurrence(int)> outer_steps(int period, double rate, double momentum) {
  return [=](int) {
    struct outer {
      double start = 0;
      double buffer = 0;
    };
    return [=, its = outer()](replicas& all, int step, std::size_t element) mutable {
      if (step == 0) {
        its = {initial(element), 0};
      }
      alone(all, step, element);
      if ((step + 1) % period == 0) {
        const double difference = its.start - mean_of(all);
        its.buffer = momentum * its.buffer + difference;
        its.start -= rate * (difference + momentum * its.buffer);
        for (replica& each : all) {
          each.x = its.start;
        }
      }
    };
  };
}

TEST(DiLoCo, IsItsRecurrence) {
  using strategy = cut<architecture::diloco<canonical>>;
  for (const int period : {1, 4}) {
    auto set = options_for<strategy>();
    set.architecture.period = period;
    equals<strategy>(outer_steps(period, 0.7, 0.9), set);
  }
}
/// The paper's inner optimizer, whose moments stay on each rank.
TEST(DiLoCo, StepsByAdamWInside) {
  using strategy = compose<architecture::diloco<canonical>>;
  constexpr int ranks = 3;
  std::vector<std::vector<float>> ended(ranks);
  transport::run_ranks(ranks, [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<strategy>(
        world, memory.tensors(),
        optimizer::adam{
            .learning_rate = 0.01f, .weight_decay = 0.1f, .decay = optimizer::decay::decoupled},
        {.architecture = {.period = 4}});
    for (int step = 0; step < steps; ++step) {
      take_step(engine, memory, step);
    }
    engine.wait();
    ended[at(world.rank())].assign(memory.parameters().begin(), memory.parameters().end());
  });
  struct inner {
    double x = 0;
    double m = 0;
    double v = 0;
  };
  for (std::size_t i = 0; i < total_elements(); ++i) {
    std::vector<inner> all(ranks, inner{initial(i)});
    double start = initial(i);
    double buffer = 0;
    for (int step = 0; step < steps; ++step) {
      double mean = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        inner& its = all[at(rank)];
        const double g = gradient(rank, step, i);
        its.x -= 0.01 * 0.1 * its.x;
        its.m = 0.9 * its.m + 0.1 * g;
        its.v = 0.999 * its.v + 0.001 * g * g;
        its.x -= 0.01 * (its.m / (1 - std::pow(0.9, step + 1))) /
                 (std::sqrt(its.v / (1 - std::pow(0.999, step + 1))) + 1e-8);
        mean += its.x / ranks;
      }
      if (step % 4 == 3) {
        buffer = 0.9 * buffer + (start - mean);
        start -= 0.7 * (start - mean + 0.9 * buffer);
        for (inner& each : all) {
          each.x = start;
        }
      }
    }
    for (int rank = 0; rank < ranks; ++rank) {
      ASSERT_NEAR(ended[at(rank)][i], all[at(rank)].x, 1e-5 * (1 + std::abs(all[at(rank)].x))) << i;
    }
  }
}
/// With a rate of 1 and no momentum, outer steps are means of models.
TEST(DiLoCo, WithoutMomentumIsLocalSgd) {
  using strategy = cut<architecture::diloco<canonical>>;
  auto set = options_for<strategy>();
  set.architecture = {.period = 4, .rate = 1, .momentum = 0};
  equals<strategy>(outer_steps(4, 1, 0), set, {3});
  using local = cut<architecture::local_sgd<canonical>>;
  const auto one = train_in_parts<strategy>(3, 0, set).parameters;
  const auto other = train_in_parts<local>(3, 0, options_for<local>()).parameters;
  for (std::size_t i = 0; i < one[0].size(); ++i) {
    ASSERT_NEAR(one[1][i], other[1][i], 1e-5f * (1 + std::abs(other[1][i]))) << i;
  }
}

/// Douillard et al., 2025: the averaging of a tensor's fragment begins after step t and ends
/// `overlap` steps later. Each rank then mixes the mean with its own model of that moment.
TEST(DiLoCo, StreamsFragmentsBesideTraining) {
  using strategy =
      compose<partition::into, architecture::streaming_diloco<architecture::all_reduce<canonical>>>;
  struct plan_of_turns {
    int period;
    int fragments;
    int overlap;
    std::vector<int> begin;  ///< t + 1 mod period, for each fragment
  };
  for (const plan_of_turns& turns :
       {plan_of_turns{4, 2, 1, {0, 2}}, plan_of_turns{4, 2, 2, {0, 2}},
        plan_of_turns{5, 3, 1, {0, 1, 3}}, plan_of_turns{3, 1, 3, {0}}}) {
    engine_options<strategy> set;
    set.partition.bytes = 20'000;
    set.run.accumulation = passes;
    set.run.deadline = 20;
    set.architecture = {.period = turns.period,
                        .fragments = turns.fragments,
                        .overlap = turns.overlap,
                        .keep = 0.25};
    const auto fragment_of = [&turns](std::size_t element) {
      int tensor = 0;
      for (std::size_t i = tensor_sizes().size(); element >= tensor_sizes()[--i]; ++tensor) {
        element -= tensor_sizes()[i];
      }
      return tensor % turns.fragments;
    };
    equals<strategy>(
        [&](int) {
          struct outer {
            double start = 0;
            double buffer = 0;
            double mean = 0;
          };
          return [&turns, fragment_of, its = outer()](replicas& all, int step,
                                                      std::size_t element) mutable {
            if (step == 0) {
              its = {initial(element), 0, 0};
            }
            alone(all, step, element);
            const int begin = turns.begin[at(fragment_of(element))];
            const int begun = step - turns.overlap;
            if (begun >= 0 && (begun + 1) % turns.period == begin) {
              its.buffer = 0.9 * its.buffer + its.mean;
              its.start -= 0.7 * (its.mean + 0.9 * its.buffer);
              for (replica& each : all) {
                each.x = 0.25 * each.x + 0.75 * its.start;
              }
            }
            if ((step + 1) % turns.period == begin) {
              its.mean = its.start - mean_of(all);
            }
          };
        },
        set, turns.overlap == 1 ? std::vector{1, 2, 3, 4, 5} : std::vector{3});
  }
}

/// Returns the nearest of 0 and seven powers of two, the greatest of which is nearest to `largest`.
double in_four_bits(double value, double largest) {
  const auto nearest = [](double magnitude) {
    int exponent = 0;
    const double digits = std::frexp(magnitude, &exponent);
    return std::ldexp(1, digits < 0.75 ? exponent - 1 : exponent);
  };
  const double least = nearest(largest) / 64;
  const double magnitude = std::abs(value);
  return magnitude < least / 2 ? 0 : std::copysign(std::max(nearest(magnitude), least), value);
}

/// From the same paper: each rank's difference is sent in four bits an element, tensor by tensor,
/// and added as floats.
TEST(DiLoCo, SendsDifferencesInFourBits) {
  using strategy =
      compose<architecture::streaming_diloco<architecture::all_gather>, compression::e3m0>;
  engine_options<strategy> set;
  set.run.accumulation = passes;
  set.run.deadline = 20;
  set.architecture = {.period = 4, .fragments = 2, .overlap = 1, .keep = 0.25};
  for (int workers = 1; workers <= 5; ++workers) {
    std::vector<std::vector<double>> expected(at(workers));
    std::size_t first = 0;
    for (std::size_t tensor = 0; tensor < tensor_sizes().size(); ++tensor) {
      const std::size_t size = tensor_sizes()[tensor_sizes().size() - 1 - tensor];
      const int begin = tensor % 2 == 0 ? 0 : 2;  // t + 1 mod the period
      std::vector<replicas> all(size);
      std::vector<double> start(size);
      std::vector<double> mean(size);
      std::vector<double> buffer(size);
      for (std::size_t i = 0; i < size; ++i) {
        start[i] = initial(first + i);
        all[i] = replicas(at(workers), replica{start[i]});
      }
      for (int step = 0; step < steps; ++step) {
        for (std::size_t i = 0; i < size; ++i) {
          alone(all[i], step, first + i);
          if (step > 0 && step % 4 == begin) {
            buffer[i] = 0.9 * buffer[i] + mean[i];
            start[i] -= 0.7 * (mean[i] + 0.9 * buffer[i]);
            for (replica& each : all[i]) {
              each.x = 0.25 * each.x + 0.75 * start[i];
            }
          }
        }
        if ((step + 1) % 4 != begin) {
          continue;
        }
        std::ranges::fill(mean, 0);
        for (std::size_t rank = 0; rank < at(workers); ++rank) {
          double largest = 0;
          for (std::size_t i = 0; i < size; ++i) {
            largest = std::max(largest, std::abs(start[i] - all[i][rank].x));
          }
          for (std::size_t i = 0; i < size; ++i) {
            mean[i] += in_four_bits(start[i] - all[i][rank].x, largest) / workers;
          }
        }
      }
      for (std::size_t i = 0; i < size; ++i) {
        for (std::size_t rank = 0; rank < at(workers); ++rank) {
          expected[rank].push_back(all[i][rank].x);
        }
      }
      first += size;
    }
    const ended whole = train_in_parts<strategy>(workers, 0, set);
    expect_near(whole, expected);
    if (workers == 3) {
      EXPECT_EQ(train_in_parts<strategy>(workers, 5, set).parameters, whole.parameters);
    }
  }
}

/// What a step mixes in is the mean that was begun a step before.
TEST(Delayed, DrawsModelsToAMeanOfAStepAgo) {
  using strategy = cut<architecture::delayed<architecture::model_averaging<canonical>>>;
  auto set = options_for<strategy>();
  set.architecture.alpha = 0.3;
  equals<strategy>(
      [](int) {
        return [mean = 0.0](replicas& all, int step, std::size_t element) mutable {
          for (replica& each : all) {
            each.x = step == 0 ? each.x : 0.7 * each.x + 0.3 * mean;
          }
          mean = mean_of(all);
          alone(all, step, element);
        };
      },
      set);
}

// ---- elastic averaging

TEST(Elastic, IsItsRecurrence) {
  using strategy = cut<architecture::elastic_averaging<canonical>>;
  for (const int period : {1, 3}) {
    for (const double beta : {0.0, 0.9, 1.0}) {
      auto set = options_for<strategy>();
      set.architecture = {.force = beta, .period = period};
      equals<strategy>(
          [=](int workers) {
            return [=, centre = 0.0](replicas& all, int step, std::size_t element) mutable {
              if (step == 0) {
                centre = initial(element);
              }
              if (step % period == 0) {
                const double alpha = beta / workers;
                double pull = 0;
                for (replica& each : all) {
                  const double stretch = each.x - centre;
                  each.x -= alpha * stretch;
                  pull += alpha * stretch;
                }
                centre += pull;
              }
              alone(all, step, element);
            };
          },
          set, beta == 0.9 && period == 1 ? std::vector{1, 2, 3, 4, 5} : std::vector{3});
    }
  }
}

// ---- through another plan, and a checkpoint

/// The result does not depend on how buckets are cut from the fifth step on.
template <class Architecture>
void outlives_a_plan(options_of<Architecture> its) {
  using strategy = cut<Architecture>;
  const auto ends = [&its](bool changes) {
    std::vector<std::vector<float>> all(3);
    transport::run_ranks(3, [&](transport::in_process& world) {
      arena memory = model_of(world.rank());
      auto set = options_for<strategy>();
      set.architecture = its;
      auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of(values), set);
      for (int step = 0; step < steps; ++step) {
        if (changes && step == 5) {
          set.fusion.bytes = 200;
          set.partition.bytes = 7000;
          engine.replan(set);
        }
        engine.wait();
        hand_in(engine, memory, step);
      }
      engine.wait();
      all[at(world.rank())].assign(memory.parameters().begin(), memory.parameters().end());
    });
    return all;
  };
  EXPECT_EQ(ends(true), ends(false));
}
TEST(Replan, ChangesNoneOfWhatRanksKeepApart) {
  outlives_a_plan<architecture::gossip>({});
  outlives_a_plan<architecture::push_sum>({.receiver = architecture::receiver::random});
  outlives_a_plan<architecture::diloco<canonical>>({.period = 3});
  outlives_a_plan<architecture::elastic_averaging<canonical>>({.period = 2});
  outlives_a_plan<architecture::local_sgd<canonical>>({.momenta = architecture::momenta::averaged});
}

/// What was averaged into a passive rank since its last step is in its checkpoint, so the sum of
/// all models is preserved.
TEST(Checkpoint, LosesNothingThatRanksHaveAveraged) {
  using strategy = compose<architecture::bipartite_averaging, partition::into>;
  engine_options<strategy> set;
  set.partition.bytes = 20'000;
  std::vector<std::string> files(5);
  std::vector<std::vector<float>> models(5);
  const auto part = [&](bool first) {
    transport::run_ranks(5, [&](transport::in_process& world) {
      arena memory = model_of(world.rank());
      auto engine =
          make_engine<strategy>(world, memory.tensors(), optimizer::sgd{.learning_rate = 1}, set);
      auto& file = files[at(world.rank())];
      if (!first) {
        if (world.rank() == 1) {  // it would be asked before it has loaded
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
        }
        std::istringstream in(file);
        load(engine, in);
      }
      const auto step_by = [&](auto gradient_of) {
        engine.wait();
        for (std::size_t i = 0; i < total_elements(); ++i) {
          memory.gradients()[i] = gradient_of(i);
        }
        for (std::size_t id = 0; id < memory.tensors().size(); ++id) {
          engine.ready(tensor_id(id));
        }
        engine.wait();
      };
      if (first) {
        step_by([&](std::size_t i) { return gradient_of_few_digits(world.rank(), 0, i); });
      }
      for (int step = 0; step < 3; ++step) {
        step_by([](std::size_t) { return 0.0f; });
      }
      if (first) {
        std::ostringstream out;
        save(engine, out);
        file = out.str();
        return;
      }
      engine.average(0);  // no rank asks any more
      if (world.rank() % 2 == 1) {
        step_by([](std::size_t) { return 0.0f; });
      }
      models[at(world.rank())].assign(memory.parameters().begin(), memory.parameters().end());
    });
  };
  part(true);
  part(false);
  for (std::size_t i = 0; i < total_elements(); ++i) {
    double sum = 0;
    double expected = 0;
    for (int rank = 0; rank < 5; ++rank) {
      sum += models[at(rank)][i];
      expected += initial(i) - gradient_of_few_digits(rank, 0, i);
    }
    ASSERT_NEAR(sum, expected, 1e-2) << i;
  }
}

// ---- what is counted

/// Where ranks take turns, a passive rank's gradient is as stale as the number of active ranks that
/// have averaged with it since its last step. An active rank's gradient is never stale.
TEST(Bipartite, CountsTheAveragingsThatAGradientHasMissed) {
  using strategy = compose<architecture::bipartite_averaging, fusion::up_to, partition::into>;
  engine_options<strategy> set;
  set.fusion.bytes = 3000;
  set.partition.bytes = 20'000;
  constexpr int taken = 7;
  for (int ranks = 1; ranks <= 5; ++ranks) {
    std::vector<push_counts> expected(at(ranks));
    std::vector<std::uint64_t> missed(at(ranks));
    for (int step = 0; step < taken; ++step) {
      for (int rank = 0; rank < ranks; ++rank) {
        if (rank % 2 == 0 && ranks > 1) {
          ++missed[at(architecture::passive_of(architecture::bipartite::complete, 1, rank,
                                               static_cast<std::uint64_t>(step), ranks))];
        }
        ++expected[at(rank)].staleness[rank % 2 == 0 ? 0 : missed[at(rank)]];
        missed[at(rank)] = 0;
      }
    }
    push_counts of_all;
    for (const push_counts& each : expected) {
      of_all += each;
    }
    transport::run_ranks(ranks, [&](transport::in_process& world) {
      arena memory = model_of(world.rank());
      auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of(values), set);
      for (int step = 0; step < taken; ++step) {
        for (int turn = 0; turn < ranks; ++turn) {
          if (world.rank() == turn) {
            take_step(engine, memory, step);
            engine.wait();
          }
          engine.average(0);
        }
      }
      const auto of_chunks = [&engine](push_counts one) {
        for (std::uint64_t& each : one.staleness) {
          each *= engine.planned().chunks.size();
        }
        return one;
      };
      const push_counts own = engine.report().pushes;
      EXPECT_TRUE(own == of_chunks(expected[at(world.rank())])) << own;
      const push_counts all = engine.pushes();
      EXPECT_TRUE(all == (world.rank() == 0 ? of_chunks(of_all) : push_counts())) << all;
      engine.average(0);
    });
  }
}

/// A progress thread counts meanwhile, which ThreadSanitizer sees.
TEST(Bipartite, ReportsWhatIsCountedInTheMiddleOfAStep) {
  using strategy = compose<architecture::bipartite_averaging, fusion::up_to>;
  engine_options<strategy> set;
  set.fusion.bytes = 1 << 30;
  set.run.progress = progress::by_thread;
  transport::run_ranks(3, [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of(values), set);
    std::uint64_t last = 0;
    for (int step = 0; step < 20; ++step) {
      take_step(engine, memory, step);
      const std::uint64_t taken = engine.report().pushes.taken();
      EXPECT_GE(taken, last);
      last = taken;
    }
    engine.wait();
    EXPECT_EQ(engine.report().pushes.taken(), 20U);
  });
}

// ---- what is refused

/// A rank that leaves is named, also where ranks are not synchronised.
template <class Architecture>
void names_who_leaves() {
  const auto said = errors(4, [](transport::in_process& world) {
    arena memory = model_of(world.rank());
    engine_options<compose<Architecture>> set;
    set.run.deadline = 20;
    auto engine =
        make_engine<compose<Architecture>>(world, memory.tensors(), optimizer_of(values), set);
    for (int step = 0; step < 100'000; ++step) {
      if (world.rank() == 1 && step == 3) {
        throw std::runtime_error("out of data");
      }
      take_step(engine, memory, 0);
      engine.wait();
    }
  });
  for (const int rank : {0, 2, 3}) {
    const std::string& heard = said[at(rank)];  // from its engine or from its thread
    EXPECT_TRUE(heard == "rank 1 left by an exception" || heard == "rank 1 failed: out of data")
        << heard;
  }
}
TEST(Refused, APeerThatLeaves) {
  names_who_leaves<architecture::gossip>();
  names_who_leaves<architecture::push_sum>();
  names_who_leaves<architecture::bipartite_averaging>();
}

template <class Strategy>
std::string refusal(int ranks, engine_options<Strategy> set) {
  const auto said = errors(ranks, [&set](transport::in_process& world) {
    arena memory = model_of(world.rank());
    make_engine<Strategy>(world, memory.tensors(), optimizer_for<Strategy>(values), set);
  });
  for (const std::string& each : said) {
    EXPECT_EQ(each, said[0]);
  }
  return said[0];
}

TEST(Refused, AGraphThatIsNotConnected) {
  using strategy = compose<architecture::gossip>;
  engine_options<strategy> set;
  set.architecture.hop = 2;
  EXPECT_EQ(refusal(4, set),
            "architecture::gossip: with hop 2, 4 ranks fall into 2 groups that never exchange "
            "anything. Fix: use a hop that shares no factor with the number of ranks, such as 1");
  EXPECT_EQ(refusal(3, set), "");
  set.architecture.hop = 0;
  EXPECT_NE(refusal(3, set).find("3 ranks fall into 3 groups"), std::string::npos);
}
TEST(Refused, ARingThatIsNotBipartite) {
  using strategy = compose<architecture::bipartite_averaging>;
  engine_options<strategy> set;
  set.architecture.neighbours = architecture::bipartite::ring;
  EXPECT_EQ(
      refusal(3, set),
      "architecture::bipartite_averaging: a ring of 3 ranks is not bipartite, because rank 0 and "
      "rank 2 would both be active. Fix: use an even number of ranks, or neighbours = complete");
  EXPECT_EQ(refusal(2, set), "");
  EXPECT_EQ(refusal(1, set), "");
}
TEST(Refused, PeriodsAndForcesThatNobodyCouldKeep) {
  using outer = compose<architecture::diloco<>>;
  EXPECT_EQ(refusal<outer>(2, {.architecture = {.period = 0}}),
            "architecture::diloco: the period must be at least 1 step. Fix: 500");
  EXPECT_EQ(refusal<outer>(2, {.architecture = {.rate = 0}}),
            "architecture::diloco: the outer rate must be above 0. Fix: 0.7");
  EXPECT_EQ(refusal<outer>(2, {.architecture = {.momentum = 1}}),
            "architecture::diloco: the outer momentum must be from 0 to below 1. Fix: 0.9");
  EXPECT_EQ(refusal<outer>(2, {.architecture = {.momentum = 0}}), "");
  using twice = compose<architecture::diloco<>, compression::nesterov_momentum<compression::none>>;
  EXPECT_EQ(refusal<twice>(2, {}),
            "architecture::diloco: this compressor sends each rank's momentum, and outer steps "
            "would make a second momentum of it. Fix: set the outer momentum to 0");
  EXPECT_EQ(refusal<twice>(2, {.architecture = {.momentum = 0}}), "");
  using streamed = compose<architecture::streaming_diloco<>>;
  EXPECT_EQ(refusal<streamed>(2, {.architecture = {.keep = 1.5}}),
            "architecture::streaming_diloco: keep must be from 0 to 1. Fix: 0.5");
  EXPECT_EQ(refusal<streamed>(2, {.architecture = {.momentum = -1}}),
            "architecture::streaming_diloco: the outer momentum must be from 0 to below 1. Fix: "
            "0.9");
  EXPECT_EQ(refusal<streamed>(2, {.architecture = {.period = 2, .fragments = 3}}),
            "architecture::streaming_diloco: 3 fragments cannot take turns in a period of 2 steps. "
            "Fix: from 1 fragment to one per step, such as 4 in 100");
  EXPECT_EQ(refusal<streamed>(2, {.architecture = {.period = 4, .fragments = 2, .overlap = 3}}),
            "architecture::streaming_diloco: the overlap is 3 steps, but the next fragment begins "
            "after 2. Fix: use an overlap from 1 step to that; architecture::diloco has none");
  using local = compose<architecture::local_sgd<>>;
  EXPECT_EQ(refusal<local>(2, {.architecture = {.period = 0}}),
            "architecture::local_sgd: the period must be at least 1 step. Fix: 4");
  using elastic = compose<architecture::elastic_averaging<>>;
  EXPECT_EQ(refusal<elastic>(2, {.architecture = {.period = 0}}),
            "architecture::elastic_averaging: the period must be at least 1 step. Fix: 1");
  EXPECT_EQ(refusal<elastic>(2, {.architecture = {.force = 1.5}}),
            "architecture::elastic_averaging: the force must be from 0 to 1. Fix: 0.9");
}

}  // namespace
}  // namespace tutti::test
