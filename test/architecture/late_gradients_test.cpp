// Gradients that come late and are dropped or corrected: servers on the virtual clock, compared
// with plain loops over time in double precision.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "support/training.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/transport/simulated.hpp"

namespace tutti::test {
namespace {

template <class Consistency>
using served = compose<architecture::parameter_server<Consistency, updated_by::servers>>;
using with_backups = served<consistency::backup_workers>;
using compensated = served<consistency::delay_compensated>;

// ---- backup workers

/// One worker's pace in a run on the virtual clock, where the network takes next to no time.
struct pace {
  double step_takes;
  int steps;
};

struct backed_up {
  std::vector<std::vector<float>> parameters{};
  std::vector<double> ended{};
  push_counts counted{};
};

template <class Strategy>
task train_at_a_pace(transport::simulated& world, engine_options<Strategy> set,
                     optimizer::sgd values, const std::vector<pace>& paces, backed_up& seen) {
  arena memory(std::vector<arena::declaration>{{"x", 5}});
  initialise(memory, world.rank());
  auto engine = make_engine<Strategy>(world, memory.tensors(), values, set);
  co_await engine.started();
  if (!engine.serves()) {
    const auto rank = static_cast<std::size_t>(world.rank());
    for (int step = 0; step < paces[rank].steps; ++step) {
      backward(memory, engine.worker(), step);
      co_await world.sleep(paces[rank].step_takes);
      engine.ready(tensor_id(0));
      co_await engine.arrival(tensor_id(0));
    }
    seen.ended[rank] = world.now();
    seen.parameters[rank].assign(memory.parameters().begin(), memory.parameters().end());
  }
  co_await engine.close();
  if (engine.serves()) {
    seen.counted += engine.report().pushes;
  }
}

template <class Strategy>
backed_up trained_at(const std::vector<pace>& paces, engine_options<Strategy> set,
                     optimizer::sgd values) {
  backed_up seen{std::vector<std::vector<float>>(paces.size()), std::vector<double>(paces.size())};
  transport::run_simulated(static_cast<int>(paces.size()) + 1, transport::link{1e15, 1e-9},
                           [&](transport::simulated& world) {
                             return train_at_a_pace(world, set, values, paces, seen);
                           });
  return seen;
}

/// The result of a plain loop over time. The first `needed` gradients for a step make its mean, a
/// later one is dropped, and a worker continues when the step after its own has begun.
struct plain_steps {
  std::vector<std::vector<double>> read;  ///< by each worker, when it has ended
  std::uint64_t taken{};
  std::uint64_t dropped{};
};
plain_steps of_plain_steps(const std::vector<pace>& paces, std::size_t needed,
                           optimizer::sgd values) {
  constexpr double never = std::numeric_limits<double>::infinity();
  const std::size_t workers = paces.size();
  std::vector<double> x(5);
  std::vector<double> m(5);
  std::vector<double> sum(5);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<double>(initial(i));
  }
  plain_steps all{std::vector<std::vector<double>>(workers)};
  std::vector<double> due;
  for (const pace& each : paces) {
    due.push_back(each.step_takes);
  }
  std::vector<int> done(workers);
  std::size_t gathered = 0;
  int step = 0;
  for (;;) {
    const auto next = static_cast<std::size_t>(std::ranges::min_element(due) - due.begin());
    const double now = due[next];
    if (now == never) {
      return all;
    }
    due[next] = never;
    const int own = done[next]++;
    if (own < step) {
      ++all.dropped;
    } else {
      ++all.taken;
      for (std::size_t i = 0; i < x.size(); ++i) {
        sum[i] += static_cast<double>(gradient(static_cast<int>(next), own, i));
      }
      if (++gathered == needed) {
        for (std::size_t i = 0; i < x.size(); ++i) {
          m[i] = static_cast<double>(values.momentum) * m[i] + sum[i] / static_cast<double>(needed);
          x[i] -= static_cast<double>(values.learning_rate) * m[i];
          sum[i] = 0;
        }
        gathered = 0;
        ++step;
      }
    }
    for (std::size_t worker = 0; worker < workers; ++worker) {
      const bool waits = due[worker] == never && all.read[worker].empty();
      if (waits && done[worker] <= step) {
        if (done[worker] == paces[worker].steps) {
          all.read[worker] = x;
        } else {
          due[worker] = now + paces[worker].step_takes;
        }
      }
    }
  }
}

TEST(BackupWorkers, TrainAsAPlainLoopDoes) {
  const optimizer::sgd values{.learning_rate = 0.1f, .momentum = 0.5f};
  const std::vector<pace> paces{{1.01, 12}, {1.07, 12}, {1.13, 12}, {1.31, 12}, {10.17, 12}};
  for (std::size_t workers = 1; workers <= paces.size(); ++workers) {
    for (std::size_t needed = 1; needed <= workers; ++needed) {
      const std::vector<pace> some(paces.end() - static_cast<std::ptrdiff_t>(workers), paces.end());
      engine_options<with_backups> set;
      set.architecture.consistency.backups = static_cast<int>(workers - needed);
      const backed_up seen = trained_at<with_backups>(some, set, values);
      const plain_steps plain = of_plain_steps(some, needed, values);
      EXPECT_EQ(seen.counted.taken(), plain.taken) << workers << ", " << needed;
      EXPECT_EQ(seen.counted.dropped, plain.dropped) << workers << ", " << needed;
      EXPECT_EQ(seen.counted.staleness[0], plain.taken);
      for (std::size_t worker = 0; worker < workers; ++worker) {
        for (std::size_t i = 0; i < 5; ++i) {
          ASSERT_NEAR(seen.parameters[worker][i], plain.read[worker][i],
                      1e-4 * (1 + std::abs(plain.read[worker][i])))
              << workers << ", " << needed << ", worker " << worker;
        }
      }
    }
  }
}

/// With negative backups a step needs more gradients than there are workers. Each worker gives
/// several to a step, and computes them on the same parameters.
TEST(BackupWorkers, BelowNoneGiveSeveralGradientsEach) {
  const optimizer::sgd values{.learning_rate = 1};
  engine_options<with_backups> set;
  set.architecture.consistency.backups = -2;  // a step needs four gradients of two workers
  const std::vector<pace> paces{{1.0, 10}, {1.1, 10}};
  const backed_up seen = trained_at<with_backups>(paces, set, values);
  EXPECT_EQ(seen.counted.taken() + seen.counted.dropped, 20U);
  // At most those of the first tokens and of the step that the last worker ends alone.
  EXPECT_LE(seen.counted.dropped, 3U);
}

/// The other workers keep their pace next to one that takes ten times as long, but wait for it if
/// all gradients are needed.
TEST(BackupWorkers, OthersDoNotWaitForTheLast) {
  const std::vector<pace> paces{{1.0, 50}, {1.0, 50}, {10.0, 5}, {1.0, 50}};
  engine_options<with_backups> set;
  const auto slowest_of_the_others = [&] {
    const auto ended = trained_at<with_backups>(paces, set, {}).ended;
    return std::max({ended[0], ended[1], ended[3]});
  };
  set.architecture.consistency.backups = 1;
  EXPECT_LT(slowest_of_the_others(), 50.01);
  set.architecture.consistency.backups = 0;
  EXPECT_GT(slowest_of_the_others(), 90.0);  // until the slow worker has left
}

// ---- delay compensation

/// Runs DC-ASGD for given orders of pushes, in double precision.
std::vector<std::vector<double>> compensated_plainly(
    const std::vector<pace>& paces, const consistency::delay_compensated::options& set,
    optimizer::sgd values) {
  constexpr double never = std::numeric_limits<double>::infinity();
  const std::size_t workers = paces.size();
  std::vector<double> x(5);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<double>(initial(i));
  }
  std::vector<double> m(5);
  std::vector<double> mean_square(5);
  std::vector<std::vector<double>> read(workers, x);
  std::vector<double> due;
  for (const pace& each : paces) {
    due.push_back(each.step_takes);
  }
  std::vector<int> done(workers);
  for (;;) {
    const auto next = static_cast<std::size_t>(std::ranges::min_element(due) - due.begin());
    if (due[next] == never) {
      return read;
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto g = static_cast<double>(gradient(static_cast<int>(next), done[next], i));
      double lambda = set.lambda;
      if (set.lambda_is == consistency::delay_compensated::rule::adaptive) {
        mean_square[i] = set.decay * mean_square[i] + (1 - set.decay) * g * g;
        lambda /= std::sqrt(mean_square[i] + 1e-7);
      }
      const double corrected = g + lambda * g * g * (x[i] - read[next][i]);
      m[i] = static_cast<double>(values.momentum) * m[i] + corrected;
      x[i] -= static_cast<double>(values.learning_rate) * m[i];
    }
    read[next] = x;
    due[next] = ++done[next] == paces[next].steps ? never : due[next] + paces[next].step_takes;
  }
}

TEST(DelayCompensation, IsThePapersTerm) {
  using rule = consistency::delay_compensated::rule;
  const optimizer::sgd values{.learning_rate = 0.05f, .momentum = 0.5f};
  const std::vector<pace> paces{{1.01, 12}, {1.37, 9}, {0.53, 20}, {2.71, 4}, {3.3, 3}};
  for (std::size_t workers = 1; workers <= paces.size(); ++workers) {
    const std::vector<pace> some(paces.begin(),
                                 paces.begin() + static_cast<std::ptrdiff_t>(workers));
    for (const rule which : {rule::constant, rule::adaptive}) {
      engine_options<compensated> set;
      auto& its = set.architecture.consistency;
      its = {.lambda = which == rule::constant ? 0.02 : 0.3, .lambda_is = which, .decay = 0.9};
      const backed_up seen = trained_at<compensated>(some, set, values);
      const auto plain = compensated_plainly(some, its, values);
      double moved = 0;  // by the correction
      const auto without = compensated_plainly(some, {.lambda = 0}, values);
      for (std::size_t worker = 0; worker < workers; ++worker) {
        for (std::size_t i = 0; i < 5; ++i) {
          ASSERT_NEAR(seen.parameters[worker][i], plain[worker][i],
                      1e-4 * (1 + std::abs(plain[worker][i])))
              << workers << ", worker " << worker;
          moved = std::max(moved, std::abs(plain[worker][i] - without[worker][i]));
        }
      }
      EXPECT_TRUE(workers == 1 ? moved == 0 : moved > 1e-2) << moved;
    }
  }
}

}  // namespace
}  // namespace tutti::test
