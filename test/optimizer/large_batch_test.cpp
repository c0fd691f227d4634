// Optimizers that look at whole tensors or at all gradients at once, and schedules of their rates,
// against their papers' algorithms in double.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <mutex>
#include <numbers>
#include <sstream>
#include <string>
#include <vector>

#include "support/training.hpp"
#include "tutti/architecture/all_gather.hpp"
#include "tutti/architecture/delayed.hpp"
#include "tutti/architecture/majority_vote.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/architecture/sparse_tree.hpp"
#include "tutti/compression/block_int8.hpp"
#include "tutti/compression/block_sign.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/momentum_correction.hpp"
#include "tutti/compression/power_sgd.hpp"
#include "tutti/compression/push_only.hpp"
#include "tutti/compression/random_k.hpp"
#include "tutti/compression/signum.hpp"
#include "tutti/compression/top_k.hpp"
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
#include "tutti/optimizer/scaled_elsewhere.hpp"
#include "tutti/partition/into.hpp"

namespace tutti::test {
namespace {

constexpr int steps = 3;
using numbers = std::vector<double>;

/// Calls `visit(first, count)` for each tensor, in the backward order that elements are counted in.
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

/// Every worker's model after three steps, which must be equal.
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

/// Replicas, pieces of fused buckets, and servers that add.
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
  // A norm is several hundred: clipped in every step, in none.
  for (const float most : {8.0f, 1e6f}) {
    const optimizer::clipped<optimizer::sgd> values{{0.125f, 0.5f}, most};
    is_its_algorithm(values, [most](int workers) {
      return clipped_in_double(workers, static_cast<double>(most));
    });
    expect_near(trained_by<compose<fusion::when_ready>>(3, values),
                clipped_in_double(3, static_cast<double>(most)), 2e-4);
  }
}

// ---- loss scaling

using scaled = optimizer::loss_scaled<optimizer::clipped<optimizer::sgd>>;

/// Gradients of a loss as the engine's values scale it; in step `bad` rank 1's last element is not
/// a number.
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
  // The step that is not finite changes nothing: the others' powers of two divide out exactly.
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

// ---- a step that updates nothing, under compressors that remember

/// What each worker's model has become, and what is remembered of gradients and means on workers
/// and on servers, as of gradients that were not scaled.
struct remembered_outcome {
  std::vector<std::vector<float>> parameters{};
  std::vector<std::vector<float>> residuals{};
  bool operator==(const remembered_outcome&) const = default;
};

std::vector<arena::declaration> small_model() {
  return {{"vector", 60}, {"scalar", 1}, {"nothing", 0}, {"matrix", 450, {15, 30}}};
}

/// A step whose gradients are the greatest of all, and on the last rank no numbers.
constexpr int not_finite = -1;

template <class Engine>
std::vector<std::vector<float>> residuals_of(Engine& engine) {
  std::vector<std::vector<float>> all;
  const auto mine = engine.memories();
  for (std::size_t which = 0; which < 2; ++which) {  // of gradients and of means; then momenta
    all.emplace_back(mine[which].begin(), mine[which].end());
  }
  for (const auto& rank : engine.collect_from_others()) {
    all.insert(all.end(), rank.begin(), rank.end());
  }
  return all;
}
void multiply(std::vector<std::vector<float>>& all, float factor) {
  for (auto& each : all) {
    for (float& value : each) {
      value *= factor;
    }
  }
}

template <class Strategy>
remembered_outcome trained_with_residuals(int workers, const std::vector<int>& told,
                                          const optimizer::loss_scaled<optimizer::sgd>& values,
                                          const engine_options<Strategy>& set) {
  remembered_outcome all;
  all.parameters.resize(static_cast<std::size_t>(workers));
  std::vector<std::vector<std::vector<float>>> left(all.parameters.size());
  transport::run_ranks(workers + servers_in<Strategy>(set), [&](transport::in_process& world) {
    arena memory = model_of(world.rank(), small_model());
    auto engine = make_engine<Strategy>(world, memory.tensors(), values, set);
    if (engine.serves()) {
      engine.serve();
      return;
    }
    for (const int step : told) {
      const float scale = engine.values().scale;
      const auto parameters =
          std::vector<float>(memory.parameters().begin(), memory.parameters().end());
      auto before = residuals_of(engine);
      std::size_t element = 0;
      for (float& each : memory.gradients()) {
        each = scale * (step == not_finite ? 64 * gradient(world.rank(), 9, element)
                                           : gradient(world.rank(), step, element));
        ++element;
      }
      if (step == not_finite && world.rank() == workers - 1) {
        memory.gradients()[3] = std::numeric_limits<float>::infinity();
        memory.gradients().back() = std::numeric_limits<float>::quiet_NaN();
      }
      for (const tensor_id id : shuffled(memory.tensors().size(), world.rank(), step + 1)) {
        engine.ready(id);
      }
      engine.wait();
      if (step == not_finite) {
        EXPECT_EQ(engine.values().scale, scale * values.backoff);
        EXPECT_TRUE(std::equal(parameters.begin(), parameters.end(), memory.parameters().begin()));
        multiply(before, values.backoff);
        EXPECT_EQ(residuals_of(engine), before) << "as before the step, in the new units";
      }
    }
    const auto rank = static_cast<std::size_t>(world.rank());
    all.parameters[rank].assign(memory.parameters().begin(), memory.parameters().end());
    left[rank] = residuals_of(engine);
    multiply(left[rank], 1 / engine.values().scale);
  });
  for (const auto& each : left) {
    all.residuals.insert(all.residuals.end(), each.begin(), each.end());
  }
  return all;
}

/// What else makes steps that are taken later, or by another scale, other ones.
enum class depends { on_nothing, on_its_number, on_the_scale };

/// Steps that are not finite change nothing, not even what later ones send; nor does a scale that
/// grows and falls by powers of two.
template <class Strategy>
void skipped_steps_leave_residuals(engine_options<Strategy> set,
                                   depends what = depends::on_nothing) {
  std::vector<int> disturbed{0, not_finite, 1,          not_finite, not_finite,
                             2, 3,          not_finite, 4,          not_finite};
  if constexpr (!facts::in_rounds<typename strategy_of<Strategy>::compression>) {
    disturbed.insert(disturbed.begin(), not_finite);  // those draw their first factor in a step
  }
  const std::vector<int> undisturbed{0, 1, 2, 3, 4};
  set.run.deadline = 60;
  for (int workers = 1; workers <= 5; ++workers) {
    SCOPED_TRACE(std::to_string(workers) + " workers");
    optimizer::loss_scaled<optimizer::sgd> values{{0.125f, 0.5f}, 1024.0f, 2.0f, 0.25f, 2};
    if constexpr (facts::keeps_momentum<typename strategy_of<Strategy>::compression>) {
      values.momentum = 0;
    }
    const auto seen = trained_with_residuals<Strategy>(workers, disturbed, values, set);
    values.scale = 1;
    values.growth = 1;
    const auto wanted = trained_with_residuals<Strategy>(workers, undisturbed, values, set);
    std::size_t kept = 0;
    for (const auto& each : seen.residuals) {
      for (const float value : each) {
        EXPECT_TRUE(std::isfinite(value));
        kept += value != 0 ? 1 : 0;
      }
    }
    EXPECT_GT(kept, 0U) << "something is remembered";
    if (what == depends::on_nothing) {
      EXPECT_TRUE(seen == wanted);
    }
  }
}

TEST(LossScaled, LeavesResidualsWhereItSkips) {
  using compression::error_feedback;
  using selection = compression::momentum_correction<error_feedback<compression::top_k>>;
  {
    using strategy = compose<selection, architecture::sparse_tree>;
    engine_options<strategy> set;
    set.compression.decorated.density = 0.05;
    skipped_steps_leave_residuals<strategy>(set);
  }
  {
    using strategy = compose<compression::push_only<error_feedback<compression::top_k>>,
                             architecture::parameter_server<>, fusion::all, partition::into>;
    engine_options<strategy> set;
    set.partition.bytes = 400;
    set.compression.density = 0.05;
    skipped_steps_leave_residuals<strategy>(set);
  }
  skipped_steps_leave_residuals<
      compose<error_feedback<compression::block_int8>, architecture::reduce_scatter_all_gather>>(
      {});
}
TEST(LossScaled, TellsServersOfAStepThatItSkips) {
  using strategy = compose<compression::error_feedback<compression::block_sign>,
                           architecture::parameter_server<>, fusion::all, partition::into>;
  engine_options<strategy> set;
  set.partition.bytes = 1000;
  set.architecture.servers = 2;
  skipped_steps_leave_residuals<strategy>(set);
}
TEST(LossScaled, LeavesTheFactorsOfATensorWhereItSkips) {
  skipped_steps_leave_residuals<compose<compression::power_sgd>>({});
}
TEST(LossScaled, SkipsWhatItsCompressorWouldHide) {
  {
    using strategy = compose<compression::error_feedback<compression::random_k>,
                             architecture::all_gather, fusion::when_ready>;
    engine_options<strategy> set;
    set.compression.density = 0.05;
    skipped_steps_leave_residuals<strategy>(set, depends::on_its_number);
  }
  // A vote is a number, whoever casts it.
  skipped_steps_leave_residuals<compose<compression::signum, architecture::majority_vote>>(
      {}, depends::on_the_scale);
}

/// A loop's own scaler: each finite step's mean on the first worker, divided by the scale, and what
/// all remember in the end, as of gradients that were not scaled.
template <class Strategy>
remembered_outcome left_to_a_scaler(int workers, const std::vector<int>& told, float growth,
                                    const engine_options<Strategy>& set) {
  remembered_outcome all;
  std::mutex mutex;
  transport::run_ranks(workers + servers_in<Strategy>(set), [&](transport::in_process& world) {
    arena memory = model_of(world.rank(), small_model());
    auto engine =
        make_engine<Strategy>(world, memory.tensors(), optimizer::scaled_elsewhere{}, set);
    if (engine.serves()) {
      engine.serve();
      return;
    }
    const auto model = std::vector<float>(memory.parameters().begin(), memory.parameters().end());
    optimizer::scaled_elsewhere values;
    for (const int step : told) {
      engine.change(values);
      auto before = residuals_of(engine);
      std::size_t element = 0;
      for (float& each : memory.gradients()) {
        each = values.scale * gradient(world.rank(), step == not_finite ? 9 : step, element++);
      }
      if (step == not_finite && world.rank() == workers - 1) {
        memory.gradients()[3] = std::numeric_limits<float>::infinity();
      }
      for (const tensor_id id : shuffled(memory.tensors().size(), world.rank(), step + 1)) {
        engine.ready(id);
      }
      engine.wait();
      const bool skips = engine.values().skipped != values.skipped;
      EXPECT_EQ(skips, step == not_finite);
      values.skipped = engine.values().skipped;
      if (skips) {
        EXPECT_EQ(residuals_of(engine), before);
        values.scale /= growth;
      } else {
        if (world.rank() == 0) {
          all.parameters.emplace_back(memory.gradients().begin(), memory.gradients().end());
          for (float& each : all.parameters.back()) {
            each /= values.scale;
          }
        }
        values.scale *= growth;
      }
    }
    EXPECT_TRUE(std::equal(model.begin(), model.end(), memory.parameters().begin()));
    auto left = residuals_of(engine);
    multiply(left, 1 / engine.values().scale);
    const std::scoped_lock lock(mutex);
    if (world.rank() == 0) {
      all.residuals = std::move(left);
    }
  });
  return all;
}
TEST(ScaledElsewhere, LeavesMeansAndTakesResidualsBack) {
  using strategy = compose<compression::error_feedback<compression::block_sign>,
                           architecture::parameter_server<>, fusion::all, partition::into>;
  engine_options<strategy> set;
  set.partition.bytes = 1000;
  set.architecture.servers = 2;
  set.run.deadline = 60;
  for (int workers = 1; workers <= 5; ++workers) {
    SCOPED_TRACE(workers);
    const auto seen = left_to_a_scaler<strategy>(
        workers, {not_finite, 0, 1, not_finite, not_finite, 2, not_finite, 3}, 8, set);
    EXPECT_EQ(seen.parameters.size(), 4U);
    EXPECT_TRUE(seen == left_to_a_scaler<strategy>(workers, {0, 1, 2, 3}, 1, set));
  }
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

/// Every rank takes each step by the same rate: a recurrence whose rate changes in every step.
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
TEST(RateSchedule, ChangesEveryRanksRateAtOneStep) {
  rates_follow_a_schedule<compose<>>();
  rates_follow_a_schedule<
      compose<architecture::parameter_server<consistency::synchronous, updated_by::servers>>>();
}

}  // namespace
}  // namespace tutti::test
