// Optimizers that need whole tensors or all gradients at a time, and schedules of their rates,
// compared with their papers' algorithms in double.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <numbers>
#include <sstream>
#include <string>
#include <vector>

#include "support/training.hpp"
#include "tutti/architecture/delayed.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/core/acting.hpp"
#include "tutti/core/checkpoint.hpp"
#include "tutti/core/rate_by_schedule.hpp"
#include "tutti/fusion/all.hpp"
#include "tutti/fusion/when_ready.hpp"
#include "tutti/optimizer/adam.hpp"
#include "tutti/optimizer/clipped.hpp"
#include "tutti/optimizer/lamb.hpp"
#include "tutti/optimizer/lars.hpp"
#include "tutti/optimizer/loss_scaled.hpp"
#include "tutti/optimizer/rate_schedule.hpp"
#include "tutti/partition/into.hpp"

namespace tutti::test {
namespace {

constexpr int steps = 3;
using numbers = std::vector<double>;

/// Calls `visit(first, count)` for each tensor, in backward order.
template <class Visit>
void for_each_tensor(Visit visit) {
  std::size_t first = 0;
  for (std::size_t id = tensor_sizes().size(); id-- > 0; first += tensor_sizes()[id]) {
    visit(first, tensor_sizes()[id]);
  }
}

numbers initial_model() {
  numbers x(total_elements());
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<double>(initial(i));
  }
  return x;
}

numbers mean_gradient(int workers, int step) {
  numbers mean(total_elements());
  for (std::size_t i = 0; i < mean.size(); ++i) {
    for (int worker = 0; worker < workers; ++worker) {
      mean[i] += static_cast<double>(gradient(worker, step, i)) / workers;
    }
  }
  return mean;
}

double norm(const numbers& of, std::size_t first, std::size_t count) {
  double squares = 0;
  for (std::size_t i = first; i < first + count; ++i) {
    squares += of[i] * of[i];
  }
  return std::sqrt(squares);
}

/// Returns the model after three steps, which must be equal on every worker.
template <class Strategy, class Optimizer>
std::vector<float> trained_by(int workers, const Optimizer& values,
                              const engine_options<Strategy>& set = {}) {
  std::vector<std::vector<float>> models(static_cast<std::size_t>(workers));
  transport::run_ranks(workers + servers_in(set), [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<Strategy>(world, memory.tensors(), values, set);
    if (engine.serves()) {
      engine.serve();
      return;
    }
    for (int step = 0; step < steps; ++step) {
      take_step(engine, memory, step);
    }
    engine.wait();
    models[static_cast<std::size_t>(world.rank())].assign(memory.parameters().begin(),
                                                          memory.parameters().end());
  });
  for (const auto& each : models) {
    EXPECT_EQ(each, models[0]);
  }
  return models[0];
}

void expect_near(const std::vector<float>& seen, const numbers& wanted, double within) {
  ASSERT_EQ(seen.size(), wanted.size());
  for (std::size_t i = 0; i < seen.size(); ++i) {
    ASSERT_NEAR(seen[i], wanted[i], within) << i;
  }
}

/// Compares replicas, pieces of fused buckets, and servers that add with the algorithm.
template <class Optimizer, class Algorithm>
void is_its_algorithm(const Optimizer& values, Algorithm algorithm) {
  using in_pieces = compose<fusion::all, partition::into>;
  engine_options<in_pieces> pieces;
  pieces.partition.bytes = 1000;
  for (const int workers : {1, 3, 4}) {
    expect_near(trained_by<compose<>>(workers, values), algorithm(workers), 2e-4);
    expect_near(trained_by<in_pieces>(workers, values, pieces), algorithm(workers), 2e-4);
    expect_near(trained_by<compose<architecture::parameter_server<>>>(workers, values),
                algorithm(workers), 2e-4);
  }
}

// ---- LARS

TEST(Lars, IsItsAlgorithm) {
  const optimizer::lars values{
      .learning_rate = 2, .momentum = 0.5f, .weight_decay = 0.25f, .trust = 0.125f};
  is_its_algorithm(values, [](int workers) {
    numbers x = initial_model();
    numbers v(x.size());
    for (int t = 0; t < steps; ++t) {
      const numbers g = mean_gradient(workers, t);
      for_each_tensor([&](std::size_t first, std::size_t count) {
        const double length = norm(x, first, count);
        const double slope = norm(g, first, count);
        const double local =
            length == 0 || slope == 0 ? 1 : 0.125 * length / (slope + 0.25 * length);
        for (std::size_t i = first; i < first + count; ++i) {
          v[i] = 0.5 * v[i] + 2 * local * (g[i] + 0.25 * x[i]);
          x[i] -= v[i];
        }
      });
    }
    return x;
  });
}

// ---- LAMB

TEST(Lamb, IsItsAlgorithm) {
  const optimizer::lamb values{.learning_rate = 0.125f,
                               .beta1 = 0.75,
                               .beta2 = 0.9375,
                               .epsilon = 0.0625f,
                               .weight_decay = 0.25f};
  is_its_algorithm(values, [](int workers) {
    numbers x = initial_model();
    numbers m(x.size());
    numbers v(x.size());
    for (int t = 1; t <= steps; ++t) {
      const numbers g = mean_gradient(workers, t - 1);
      numbers u(x.size());
      for (std::size_t i = 0; i < x.size(); ++i) {
        m[i] = 0.75 * m[i] + 0.25 * g[i];
        v[i] = 0.9375 * v[i] + 0.0625 * g[i] * g[i];
        const double corrected = m[i] / (1 - std::pow(0.75, t));
        u[i] = corrected / (std::sqrt(v[i] / (1 - std::pow(0.9375, t))) + 0.0625) + 0.25 * x[i];
      }
      for_each_tensor([&](std::size_t first, std::size_t count) {
        const double length = norm(x, first, count);
        const double slope = norm(u, first, count);
        const double ratio = length == 0 || slope == 0 ? 1 : length / slope;
        for (std::size_t i = first; i < first + count; ++i) {
          x[i] -= 0.125 * ratio * u[i];
        }
      });
    }
    return x;
  });
}

// ---- clipping by the global norm

numbers clipped_in_double(int workers, double most) {
  numbers x = initial_model();
  numbers m(x.size());
  for (int t = 0; t < steps; ++t) {
    const numbers g = mean_gradient(workers, t);
    const double length = norm(g, 0, g.size());
    const double factor = length > most ? most / length : 1;
    for (std::size_t i = 0; i < x.size(); ++i) {
      m[i] = 0.5 * m[i] + factor * g[i];
      x[i] -= 0.125 * m[i];
    }
  }
  return x;
}

TEST(Clipped, MultipliesAllGradientsByOneFactor) {
  // The norm is several hundred, so gradients are clipped in every step or in none.
  for (const float most : {8.0f, 1e6f}) {
    const optimizer::clipped<optimizer::sgd> values{{0.125f, 0.5f}, most};
    is_its_algorithm(values, [most](int workers) {
      return clipped_in_double(workers, static_cast<double>(most));
    });
    expect_near(trained_by<compose<fusion::when_ready>>(3, values),
                clipped_in_double(3, static_cast<double>(most)), 2e-4);
  }
}

/// A dense mean shows each of them in its own way.
TEST(Clipped, UpdatesNothingWhereTheNormIsNotFinite) {
  for (const float wrong :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    transport::run_ranks(2, [&](transport::in_process& world) {
      arena memory = model_of(world.rank());
      auto engine = make_engine<compose<>>(
          world, memory.tensors(), optimizer::clipped<optimizer::sgd>{{0.125f, 0.5f, 0.25f}, 8.0f});
      take_step(engine, memory, 0);
      engine.wait();
      const std::vector<float> before(memory.parameters().begin(), memory.parameters().end());
      backward(memory, world.rank(), 1);
      memory.gradients()[3] = world.rank() == 1 ? wrong : 0.0f;
      for (std::size_t id = memory.tensors().size(); id-- > 0;) {
        engine.ready(tensor_id(id));
      }
      engine.wait();
      EXPECT_TRUE(std::ranges::equal(memory.parameters(), before)) << wrong;
    });
  }
}
TEST(Clipped, RefusesABoundThatTurnsGradientsRound) {
  optimizer::clipped<optimizer::sgd> values;
  for (const float most : {0.0f, -1.0f, std::numeric_limits<float>::quiet_NaN()}) {
    values.most = most;
    EXPECT_THROW(expect_values(values), usage_error) << most;
  }
  values.most = std::numeric_limits<float>::infinity();
  EXPECT_NO_THROW(expect_values(values));
}

// ---- loss scaling

using scaled = optimizer::loss_scaled<optimizer::clipped<optimizer::sgd>>;

/// Trains on gradients of a loss that is scaled as the engine's values say. In step `bad`, rank 1's
/// last element is NaN.
std::vector<float> trained_scaled(int taken, int bad, std::vector<float>& scales,
                                  std::string* checkpoint = nullptr) {
  std::vector<std::vector<float>> models(3);
  transport::run_ranks(3, [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<compose<>>(world, memory.tensors(),
                                         scaled{{{0.125f, 0.5f}, 8.0f}, 1024.0f, 2.0f, 0.25f, 2});
    for (int step = 0; step < taken; ++step) {
      engine.wait();
      if (world.rank() == 0) {
        scales.push_back(engine.values().scale);
      }
      std::size_t element = 0;
      for (float& each : memory.gradients()) {
        each =
            engine.values().scale * gradient(world.rank(), step < bad ? step : step - 1, element++);
      }
      if (step == bad && world.rank() == 1) {
        memory.gradients().back() = std::numeric_limits<float>::quiet_NaN();
      }
      for (std::size_t id = memory.tensors().size(); id-- > 0;) {
        engine.ready(tensor_id(id));
      }
    }
    engine.wait();
    models[static_cast<std::size_t>(world.rank())].assign(memory.parameters().begin(),
                                                          memory.parameters().end());
    if (checkpoint != nullptr) {
      std::ostringstream out;
      save(engine, out);
      if (world.rank() == 0) {
        *checkpoint = out.str();
      }
    }
  });
  EXPECT_EQ(models[1], models[0]);
  EXPECT_EQ(models[2], models[0]);
  return models[0];
}

TEST(LossScaled, DividesByItsScaleAndSkipsOnAllRanksWhatIsNotFinite) {
  std::vector<float> scales;
  const auto undisturbed = trained_scaled(steps, 99, scales);
  expect_near(undisturbed, clipped_in_double(3, 8), 2e-4);
  EXPECT_EQ(scales, (std::vector<float>{1024, 1024, 2048})) << "twice after two finite steps";
  scales.clear();
  // The step with NaN changes nothing, because scales are powers of two, which divide out exactly.
  EXPECT_EQ(trained_scaled(steps + 1, 1, scales), undisturbed);
  EXPECT_EQ(scales, (std::vector<float>{1024, 1024, 256, 256}));
}

TEST(LossScaled, GoesOnFromACheckpoint) {
  std::vector<float> scales;
  std::string saved;
  trained_scaled(3, 1, scales, &saved);
  transport::run_ranks(1, [&](transport::in_process& world) {
    arena memory = model_of(0);
    auto engine = make_engine<compose<>>(world, memory.tensors(), scaled{{{0.125f, 0.5f}, 8.0f}});
    std::istringstream in(saved);
    EXPECT_THROW(load(engine, in), usage_error) << "of three ranks";
  });
  scaled values{};
  values.begin_step(std::numeric_limits<double>::infinity());
  values.begin_step(0);
  EXPECT_EQ(values.scale, 32768);
  EXPECT_EQ(values.skipped, 1U);
  EXPECT_EQ(values.finite_steps, 1U);
}

// ---- schedules

TEST(RateSchedule, RisesAndFallsAsItSays) {
  using optimizer::falling;
  const auto at = [](falling how, std::uint64_t step) {
    return static_cast<double>(optimizer::rate_schedule{.highest = 0.8f,
                                                        .lowest = 0.2f,
                                                        .warm_up = 4,
                                                        .steps = 12,
                                                        .falling = how,
                                                        .every = 5,
                                                        .factor = 0.5f}
                                   .at(step));
  };
  for (const falling how :
       {falling::constant, falling::linear, falling::cosine, falling::in_steps}) {
    EXPECT_NEAR(at(how, 0), 0.2, 1e-6);
    EXPECT_NEAR(at(how, 3), 0.8, 1e-6);
  }
  for (std::uint64_t step = 4; step < 20; ++step) {
    const double share = step < 12 ? static_cast<double>(step - 4) / 8 : 1;
    EXPECT_NEAR(at(falling::constant, step), 0.8, 1e-6);
    EXPECT_NEAR(at(falling::linear, step), 0.8 - 0.6 * share, 1e-6) << step;
    EXPECT_NEAR(at(falling::cosine, step), 0.5 + 0.3 * std::cos(std::numbers::pi * share), 1e-6);
  }
  EXPECT_NEAR(at(falling::in_steps, 4), 0.8, 1e-6);
  EXPECT_NEAR(at(falling::in_steps, 5), 0.4, 1e-6);
  EXPECT_NEAR(at(falling::in_steps, 9), 0.4, 1e-6);
  EXPECT_NEAR(at(falling::in_steps, 10), 0.2, 1e-6);
  EXPECT_NEAR(at(falling::in_steps, 50), 0.2, 1e-6) << "not below the lowest";
  EXPECT_FLOAT_EQ((optimizer::rate_schedule{.highest = 0.5f}.at(7)), 0.5f);
  EXPECT_THROW(rate_by_schedule({.every = 0}), usage_error);
}

/// Every rank takes each step by the same rate, as in a recurrence whose rate changes in every
/// step.
template <class Strategy>
void rates_follow_a_schedule() {
  const optimizer::rate_schedule set{
      .highest = 0.25f, .warm_up = 2, .steps = 5, .falling = optimizer::falling::linear};
  constexpr int taken = 5;
  const int servers = has_servers<Strategy> ? 1 : 0;
  transport::run_ranks(3 + servers, [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer::sgd{9.0f, 0.5f});
    if (engine.serves()) {
      engine.serve();
      return;
    }
    acting policies(rate_by_schedule{set});
    policies.before_training(engine);
    for (int step = 0; step < taken; ++step) {
      policies.before_step(engine);
      take_step(engine, memory, step);
      policies.after_step(engine);
    }
    engine.wait();
    const double rates[taken] = {0.125, 0.25, 0.25, 0.25 * 2 / 3, 0.25 / 3};
    numbers x = initial_model();
    numbers m(x.size());
    for (int step = 0; step < taken; ++step) {
      const numbers g = mean_gradient(3, step);
      for (std::size_t i = 0; i < x.size(); ++i) {
        m[i] = 0.5 * m[i] + g[i];
        x[i] -= rates[step] * m[i];
      }
    }
    expect_near({memory.parameters().begin(), memory.parameters().end()}, x, 2e-4);
  });
}
TEST(RateSchedule, OfNoStepsFallsNowhere) {
  using optimizer::falling;
  for (const falling how : {falling::linear, falling::cosine}) {
    EXPECT_THROW(rate_by_schedule({.falling = how}), usage_error) << "a rate of 0 throughout";
    EXPECT_NO_THROW(rate_by_schedule({.steps = 1, .falling = how}));
  }
  EXPECT_NO_THROW(rate_by_schedule({.falling = falling::in_steps}));
}

TEST(RateSchedule, ChangesEveryRanksRateAtOneStep) {
  rates_follow_a_schedule<compose<>>();
  rates_follow_a_schedule<
      compose<architecture::parameter_server<consistency::synchronous, updated_by::servers>>>();
}

}  // namespace
}  // namespace tutti::test
