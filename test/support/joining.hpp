#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <vector>

#include "support/model_on.hpp"
#include "support/oracle.hpp"
#include "support/training.hpp"
#include "tutti/base/memory.hpp"

/// Compares ranks that run out of batches one after the other, over any transport, with plain loops
/// in double.
namespace tutti::test {

/// The number of batches of each rank in each epoch. Every epoch ends with `join`.
using batches_of_ranks = std::vector<std::vector<int>>;

inline int most(const std::vector<int>& epoch) { return *std::ranges::max_element(epoch); }

/// Returns how many steps so many batches make when each step has `accumulation` backward passes.
inline int passes_of(unsigned accumulation, int batches) {
  const auto a = static_cast<int>(accumulation);
  return (batches + a - 1) / a;
}

/// Returns the parameters of momentum SGD, in double, on the sum over the ranks that have a batch,
/// divided by the number of all ranks.
inline std::vector<double> trained_in_double(const batches_of_ranks& epochs, sgd_values set,
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

/// Returns how far floats may be from `trained_in_double`. Gradients are below 64 and everything
/// else below 1024, and in a step an element is rounded once for each rank and eight times more.
inline double allowed(const batches_of_ranks& epochs) {
  int steps = 0;
  for (const auto& each : epochs) {
    steps += most(each);
  }
  return static_cast<double>(steps) * (8.0 + static_cast<double>(epochs[0].size())) *
         std::ldexp(1024.0, -24);
}

/// The state of a rank after training.
struct ending {
  std::vector<float> parameters{};
  std::vector<float> residuals{};
  std::vector<float> of_means{};  ///< for the elements that this rank owns
  std::uint64_t steps = 0;
  std::uint64_t agenda = 0;
};

/// Runs one rank's epochs. The model itself adds up the gradients of a step's passes.
template <class Strategy, class Transport>
ending joined_over(Transport& world, const batches_of_ranks& epochs,
                   const engine_options<Strategy>& options, sgd_values set = {}) {
  using queue = typename Transport::queue_type;
  const auto rank = static_cast<std::size_t>(world.rank());
  const auto passes = static_cast<int>(options.run.accumulation);
  queue compute;
  model_on<queue> model(compute, world.rank(), layout::together, gradient);
  auto engine = make_engine<Strategy>(world, model.tensors(), optimizer_of(set), options);
  for (std::size_t epoch = 0; epoch < epochs.size(); ++epoch) {
    for (int batch = 0; batch < epochs[epoch][rank]; ++batch) {
      const int step = 100 * static_cast<int>(epoch) + batch;
      for (const tensor_id id : shuffled(model.tensors().size(), world.rank(), step)) {
        engine.wait(id, compute);
        model.backward(id, [&](std::size_t element) {
          float sum = 0;
          for (int pass = step - batch % passes; pass <= step; ++pass) {
            sum += gradient(world.rank(), pass, element);
          }
          return sum;
        });
        engine.ready(id, compute);
      }
    }
    engine.join();
    EXPECT_FALSE(engine.is_in_a_step());
  }
  ending mine{model.parameters(), {}, {}, engine.steps(), engine.agenda()};
  const auto remembered = engine.memories();
  const auto residuals = host_view(compute, remembered[0]);
  const auto of_means = host_view(compute, remembered[1]);
  mine.residuals.assign(residuals.begin(), residuals.end());
  mine.of_means.assign(of_means.begin(), of_means.end());
  EXPECT_EQ(engine.average(static_cast<double>(rank)), (static_cast<double>(world.size()) - 1) / 2);
  return mine;
}

/// Returns settings in which ranks run out of batches in rank order, in the reverse order, and in
/// any order.
inline std::vector<batches_of_ranks> settings(int size) {
  std::vector<int> later(static_cast<std::size_t>(size));
  for (std::size_t rank = 0; rank < later.size(); ++rank) {
    later[rank] = 3 + static_cast<int>(rank);
  }
  std::vector<int> any = later;
  for (int& each : any) {
    each = 3 * each % 7;  // some rank may have no batch at all
  }
  const std::vector<int> sooner(later.rbegin(), later.rend());
  return {{later}, {sooner, any, later}};
}

/// Expects all ranks to agree, and to be within rounding of the plain loop.
inline void are_as_expected(const std::vector<ending>& all, const batches_of_ranks& epochs,
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

}  // namespace tutti::test
