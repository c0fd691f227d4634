// Ranks that run out of batches one after the other, against plain loops in double.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "support/errors.hpp"
#include "support/training.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/coordination/negotiated.hpp"
#include "tutti/fusion/when_ready.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/schedule/by_priority.hpp"

namespace tutti::test {
namespace {

/// Batches of each rank in each epoch; every epoch ends by joining.
using batches_of_ranks = std::vector<std::vector<int>>;

int most(const std::vector<int>& epoch) { return *std::ranges::max_element(epoch); }

/// Backward passes that make a step.
int passes_of(unsigned accumulation, int batches) {
  const auto a = static_cast<int>(accumulation);
  return (batches + a - 1) / a;
}

/// Momentum SGD on the sum over whoever has a batch, divided by all ranks; in double.
std::vector<double> trained_in_double(const batches_of_ranks& epochs, sgd_values set,
                                      unsigned accumulation = 1) {
  const std::size_t n = total_elements();
  std::vector<double> x(n);
  std::vector<double> m(n, 0.0);
  for (std::size_t i = 0; i < n; ++i) {
    x[i] = static_cast<double>(initial(i));
  }
  for (std::size_t epoch = 0; epoch < epochs.size(); ++epoch) {
    const auto& batches = epochs[epoch];
    for (int step = 0; step < passes_of(accumulation, most(batches)); ++step) {
      for (std::size_t i = 0; i < n; ++i) {
        double sum = 0;
        for (std::size_t rank = 0; rank < batches.size(); ++rank) {
          for (unsigned pass = 0; pass < accumulation; ++pass) {
            const int batch = step * static_cast<int>(accumulation) + static_cast<int>(pass);
            if (batch < batches[rank]) {
              sum += static_cast<double>(
                  gradient(static_cast<int>(rank), 100 * static_cast<int>(epoch) + batch, i));
            }
          }
        }
        const double mean = sum / (static_cast<double>(batches.size()) * accumulation);
        m[i] = static_cast<double>(set.momentum) * m[i] + mean +
               static_cast<double>(set.weight_decay) * x[i];
        x[i] -= static_cast<double>(set.learning_rate) * m[i];
      }
    }
  }
  return x;
}

/// How far floats may be from that: gradients are below 64, everything else below 1024, and an
/// element goes through a rounding a rank and eight more in a step.
double allowed(const batches_of_ranks& epochs) {
  int steps = 0;
  for (const auto& each : epochs) {
    steps += most(each);
  }
  return static_cast<double>(steps) * (8.0 + static_cast<double>(epochs[0].size())) *
         std::ldexp(1024.0, -24);
}

void add_gradients(arena& memory, int rank, int step, bool begins) {
  std::size_t element = 0;
  for (float& each : memory.gradients()) {
    each = (begins ? 0.0f : each) + gradient(rank, step, element++);
  }
}

/// What each rank ends with.
struct ending {
  std::vector<float> parameters{};
  std::vector<float> residuals{};
  std::vector<float> of_means{};  ///< that this rank owns
  std::uint64_t steps = 0;
  std::uint64_t agenda = 0;
};

template <class Strategy>
std::vector<ending> trained_on_threads(const batches_of_ranks& epochs,
                                       engine_options<Strategy> options, sgd_values set = {}) {
  const std::size_t size = epochs[0].size();
  std::vector<ending> all(size);
  options.run.deadline = 20;
  const auto said = errors(static_cast<int>(size), [&](transport::in_process& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    arena memory = model_of(world.rank());
    auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(set), options);
    for (std::size_t epoch = 0; epoch < epochs.size(); ++epoch) {
      for (int batch = 0; batch < epochs[epoch][rank]; ++batch) {
        const int step = 100 * static_cast<int>(epoch) + batch;
        engine.wait();
        add_gradients(memory, world.rank(), step,
                      batch % static_cast<int>(options.run.accumulation) == 0);
        for (const tensor_id id : shuffled(memory.tensors().size(), world.rank(), step)) {
          engine.ready(id);
        }
      }
      engine.join();
    }
    all[rank].parameters.assign(memory.parameters().begin(), memory.parameters().end());
    const auto remembered = engine.memories();
    all[rank].residuals.assign(remembered[0].begin(), remembered[0].end());
    all[rank].of_means.assign(remembered[1].begin(), remembered[1].end());
    all[rank].steps = engine.steps();
    all[rank].agenda = engine.agenda();
    EXPECT_EQ(engine.average(static_cast<double>(rank)), (static_cast<double>(size) - 1) / 2);
  });
  EXPECT_EQ(said, std::vector<std::string>(size));
  return all;
}

/// One rank after the other, in either order, and any.
std::vector<batches_of_ranks> settings(int size) {
  std::vector<int> later(static_cast<std::size_t>(size));
  for (std::size_t rank = 0; rank < later.size(); ++rank) {
    later[rank] = 3 + static_cast<int>(rank);
  }
  std::vector<int> any = later;
  for (int& each : any) {
    each = 3 * each % 7;  // none at all, too
  }
  const std::vector<int> sooner(later.rbegin(), later.rend());
  return {{later}, {sooner, any, later}};
}

void are_as_expected(const std::vector<ending>& all, const batches_of_ranks& epochs,
                     unsigned accumulation = 1) {
  const auto expected = trained_in_double(epochs, {}, accumulation);
  std::uint64_t steps = 0;
  for (const auto& each : epochs) {
    steps += static_cast<std::uint64_t>(passes_of(accumulation, most(each)));
  }
  for (const ending& mine : all) {
    EXPECT_EQ(mine.steps, steps);
    EXPECT_EQ(mine.agenda, all[0].agenda);
    ASSERT_EQ(mine.parameters, all[0].parameters);
  }
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    worst = std::max(worst, std::abs(expected[i] - static_cast<double>(all[0].parameters[i])));
  }
  EXPECT_LE(worst, allowed(epochs)) << all.size() << " ranks";
}

template <class Strategy>
void join_one_after_the_other(engine_options<Strategy> options = {}) {
  for (int size = 1; size <= 5; ++size) {
    for (const auto& epochs : settings(size)) {
      are_as_expected(trained_on_threads<Strategy>(epochs, options), epochs,
                      options.run.accumulation);
    }
  }
}

using negotiated = compose<coordination::negotiated>;
using gathered = compose<coordination::negotiated, fusion::when_ready>;
using windowed = compose<coordination::negotiated, partition::into, schedule::by_priority>;

TEST(Join, WhoHasNoBatchLeftTakesPartWithZeros) {
  for (const progress who : {progress::by_caller, progress::by_thread}) {
    engine_options<negotiated> options;
    options.run.progress = who;
    join_one_after_the_other<negotiated>(options);
  }
}

TEST(Join, LaunchesThatAreGatheredAreNamed) {
  engine_options<gathered> options;
  options.fusion = {.bytes = 4000, .cycle = 1e-4};
  options.coordination = {coordination::identity::name, 3};
  options.run.progress = progress::by_thread;
  join_one_after_the_other<gathered>(options);
}

TEST(Join, AWindowOfCreditGoesOn) {
  engine_options<windowed> options;
  options.partition.bytes = 8192;
  options.schedule = {8192, schedule::credit_rule::fits};
  join_one_after_the_other<windowed>(options);
}

TEST(Join, PassesThatWereAddedUpAreSentFirst) {
  engine_options<negotiated> options;
  options.run.accumulation = 3;
  join_one_after_the_other<negotiated>(options);
}

/// Contributed = applied + residuals, of ranks that have joined, too.
TEST(Join, ErrorFeedbackLosesNothing) {
  using strategy =
      compose<coordination::negotiated, compression::error_feedback<compression::top_k>>;
  const batches_of_ranks epochs{{2, 5, 3}};
  engine_options<strategy> options;
  options.compression.density = 0.05;
  const auto all = trained_on_threads<strategy>(epochs, options, {1.0f, 0.0f, 0.0f});
  double worst = 0;
  for (std::size_t i = 0; i < total_elements(); ++i) {
    double contributed = 0;
    double residuals = 0;
    for (int rank = 0; rank < 3; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      residuals += static_cast<double>(all[at].residuals[i]);
      residuals += 3 * static_cast<double>(all[at].of_means[i]);
      for (int step = 0; step < epochs[0][at]; ++step) {
        contributed += static_cast<double>(gradient(rank, step, i));
      }
    }
    const double applied =
        3 * (static_cast<double>(initial(i)) - static_cast<double>(all[0].parameters[i]));
    worst = std::max(worst, std::abs(contributed - applied - residuals));
  }
  EXPECT_LE(worst, 3 * allowed(epochs));
  EXPECT_EQ(all[1].parameters, all[0].parameters);
  EXPECT_EQ(all[2].parameters, all[0].parameters);
}

template <class Strategy>
task simulated_rank(transport::simulated& world, const std::vector<int>& batches,
                    engine_options<Strategy> options, std::vector<ending>& all) {
  const auto rank = static_cast<std::size_t>(world.rank());
  arena memory = model_of(world.rank());
  auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(), options);
  co_await engine.started();
  for (int step = 0; step < batches[rank]; ++step) {
    for (std::size_t i = 0; i < memory.tensors().size(); ++i) {
      co_await engine.arrival(tensor_id(i));
    }
    backward(memory, world.rank(), step);
    for (const tensor_id id : shuffled(memory.tensors().size(), world.rank(), step)) {
      co_await world.sleep(1e-6);
      engine.ready(id);
    }
  }
  co_await engine.joined();
  all[rank].parameters.assign(memory.parameters().begin(), memory.parameters().end());
  all[rank].steps = engine.steps();
  all[rank].agenda = engine.agenda();
  co_await engine.close();
}

TEST(Join, InSimulation) {
  engine_options<gathered> options;
  options.fusion = {.bytes = 4000, .cycle = 1e-4};
  for (int size = 1; size <= 5; ++size) {
    const batches_of_ranks epochs = settings(size)[0];
    std::vector<ending> all(static_cast<std::size_t>(size));
    transport::run_simulated(size, transport::link{1.25e9, 50e-6},
                             [&](transport::simulated& world) {
                               return simulated_rank<gathered>(world, epochs[0], options, all);
                             });
    are_as_expected(all, epochs);
  }
}

}  // namespace
}  // namespace tutti::test
