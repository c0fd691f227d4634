// A step that updates nothing leaves residuals as they were, on workers and on servers, whether the
// engine or the caller skips it.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <gtest/gtest.h>
#include <limits>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "support/training.hpp"
#include "tutti/architecture/all_gather.hpp"
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/architecture/majority_vote.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/architecture/sparse_tree.hpp"
#include "tutti/compression/block_int8.hpp"
#include "tutti/compression/block_sign.hpp"
#include "tutti/compression/chain.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/fading_error_feedback.hpp"
#include "tutti/compression/fp16.hpp"
#include "tutti/compression/momentum_correction.hpp"
#include "tutti/compression/power_sgd.hpp"
#include "tutti/compression/push_only.hpp"
#include "tutti/compression/random_k.hpp"
#include "tutti/compression/scaled_sign.hpp"
#include "tutti/compression/sign.hpp"
#include "tutti/compression/signum.hpp"
#include "tutti/compression/threshold.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/fusion/all.hpp"
#include "tutti/fusion/when_ready.hpp"
#include "tutti/optimizer/loss_scaled.hpp"
#include "tutti/optimizer/scaled_elsewhere.hpp"
#include "tutti/partition/into.hpp"

namespace tutti::test {
namespace {

/// Each worker's parameters, and the residuals of gradients and means on workers and servers,
/// converted to gradients that are not scaled.
struct remembered_outcome {
  std::vector<std::vector<float>> parameters{};
  std::vector<std::vector<float>> residuals{};
  bool operator==(const remembered_outcome&) const = default;
};

std::vector<arena::declaration> small_model() {
  return {{"vector", 60}, {"scalar", 1}, {"nothing", 0}, {"matrix", 450, {15, 30}}};
}

/// A step whose gradients are the largest of all, and on the last rank not finite.
constexpr int not_finite = -1;

template <class Engine>
std::vector<std::vector<float>> residuals_of(Engine& engine) {
  std::vector<std::vector<float>> all;
  const auto mine = engine.memories();
  for (std::size_t which = 0; which < 2; ++which) {  // of gradients, of means, then momenta
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
      if (step == 3) {
        engine.replan(set);
      }
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

/// A scale that becomes infinite would never become finite again.
TEST(LossScale, GrowsNoFurtherThanFloatsDo) {
  optimizer::loss_scaled<optimizer::sgd> values{{0.1f, 0.0f}, 1e38f, 2.0f, 0.5f, 1};
  values.begin_step(1);
  EXPECT_EQ(values.scale, 2e38f);
  values.begin_step(1);
  EXPECT_EQ(values.scale, 2e38f);
}

/// The interval may become shorter than the row of finite steps so far.
TEST(LossScale, GrowsByAnIntervalThatHasBecomeShorter) {
  optimizer::loss_scaled<optimizer::sgd> values{{0.1f, 0.0f}, 8.0f, 2.0f, 0.5f, 100};
  for (int step = 0; step < 7; ++step) {
    values.begin_step(1);
  }
  values.interval = 5;
  values.begin_step(1);
  EXPECT_EQ(values.scale, 16);
  EXPECT_EQ(values.finite_steps, 0U);
}

/// Whether what a step sends depends on its number, so that steps taken later differ.
enum class depends { on_nothing, on_its_number };

/// Expects steps that are not finite to change nothing, not even what later steps send. A scale
/// that grows and falls by powers of two changes nothing either.
template <class Strategy>
void skipped_steps_leave_residuals(engine_options<Strategy> set,
                                   depends what = depends::on_nothing) {
  std::vector<int> disturbed{0, not_finite, 1,          not_finite, not_finite,
                             2, 3,          not_finite, 4,          not_finite};
  if constexpr (!facts::in_rounds<typename strategy_of<Strategy>::compression>) {
    disturbed.insert(disturbed.begin(), not_finite);  // these draw their first factor
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
    set.compression.clip = 1;
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

/// Adds up the means of all steps, and steps along that sum. Compressors remember nothing.
struct adds_up_means : architecture::all_reduce<> {
  template <class World>
  struct state : all_reduce::state<World> {
    state(World& its_world, const options_of<all_reduce>& set)
        : all_reduce::state<World>(its_world, set),
          world(&its_world),
          sum(its_world.allocate_parallel()),
          before(its_world.allocate_parallel()) {}
    void incoming(const chunk& piece, std::span<float> mean) {
      const std::span<float> its = world->part_of(span_of(sum), piece);
      const float scale = scale_of(world->values());
      world->copy(world->part_of(span_of(before), piece), its);
      world->blend(its, mean, 1.0f, 1 / scale);
      world->blend(mean, its, 0.0f, scale);
    }
    void undo_step() { world->copy(span_of(sum), span_of(before)); }
    std::vector<std::span<float>> memories() { return {span_of(sum)}; }
    World* world;
    typename World::template memory<float> sum;
    typename World::template memory<float> before;
  };
};
TEST(LossScaled, TellsAnArchitectureOfAStepThatItSkips) {
  const optimizer::loss_scaled<optimizer::sgd> values{{0.125f, 0.5f}, 1024.0f, 2.0f, 0.25f, 100};
  for (int workers = 1; workers <= 5; ++workers) {
    const auto parameters = [&](const std::vector<int>& told) {
      return trained_with_residuals<compose<adds_up_means>>(workers, told, values, {}).parameters;
    };
    EXPECT_EQ(parameters({0, not_finite, 1, not_finite, 2}), parameters({0, 1, 2})) << workers;
  }
}

using signs_at_servers = compose<compression::error_feedback<compression::block_sign>,
                                 architecture::parameter_server<>, fusion::all, partition::into>;

engine_options<signs_at_servers> at_two_servers() {
  engine_options<signs_at_servers> set;
  set.partition.bytes = 1000;
  set.architecture.servers = 2;
  return set;
}
TEST(LossScaled, TellsServersOfAStepThatItSkips) {
  skipped_steps_leave_residuals<signs_at_servers>(at_two_servers());
}
/// A bound on residuals is meant for gradients of the unscaled loss, at both ends.
TEST(LossScaled, MultipliesBoundsOfResiduals) {
  using strategy = compose<compression::fading_error_feedback<compression::block_sign>,
                           architecture::parameter_server<>, fusion::all, partition::into>;
  engine_options<strategy> set;
  set.partition.bytes = 1000;
  set.architecture.servers = 2;
  set.compression.most = 4;
  skipped_steps_leave_residuals<strategy>(set);
}
/// So are a threshold and what elements become, on the workers and on the servers that decode them.
TEST(LossScaled, MultipliesThresholds) {
  using compression::error_feedback;
  {
    using strategy = compose<error_feedback<compression::two_bit>, architecture::all_gather>;
    skipped_steps_leave_residuals<strategy>({});
  }
  {
    using strategy = compose<error_feedback<compression::one_bit>, architecture::all_gather>;
    skipped_steps_leave_residuals<strategy>({});
  }
  using strategy = compose<compression::push_only<error_feedback<compression::two_bit>>,
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
  {
    using strategy = compose<compression::random_k, architecture::all_gather>;
    engine_options<strategy> set;
    set.compression.density = 0.05;
    trained_with_residuals<strategy>(2, {not_finite, 0}, {{0.125f, 0.5f}, 1024.0f}, set);
  }
}
/// A vote is finite even if the voter's gradient is not, and the result is not ±1 but ±the scale
/// before it is divided, on workers and on servers.
TEST(LossScaled, CountsVotesAsWithoutAScale) {
  using compression::error_feedback, compression::sign, compression::signum;
  skipped_steps_leave_residuals<compose<signum, architecture::majority_vote>>({});
  {
    using strategy = compose<signum, architecture::majority_vote>;
    engine_options<strategy> set;
    set.architecture.tie = architecture::tie::by_chance;
    set.architecture.single = architecture::single_voter::is_believed;
    skipped_steps_leave_residuals<strategy>(set, depends::on_its_number);
  }
  skipped_steps_leave_residuals<compose<signum, architecture::all_gather, fusion::when_ready>>({});
  skipped_steps_leave_residuals<compose<signum, architecture::reduce_scatter_all_gather>>({});
  skipped_steps_leave_residuals<compose<error_feedback<sign>, architecture::all_gather>>({});
  skipped_steps_leave_residuals<compose<compression::momentum_correction<error_feedback<
                                            compression::chain<compression::top_k, sign>>>,
                                        architecture::all_gather>>({});
  {
    using strategy = compose<error_feedback<sign>, architecture::parameter_server<>, fusion::all,
                             partition::into>;
    engine_options<strategy> set;
    set.partition.bytes = 1000;
    set.architecture.servers = 2;
    skipped_steps_leave_residuals<strategy>(set);
  }
  using strategy = compose<compression::push_only<signum>, architecture::parameter_server<>>;
  skipped_steps_leave_residuals<strategy>({});
}

TEST(LossScaled, FallsToNoScaleThatNothingCanBeDividedBy) {
  optimizer::loss_scaled<optimizer::sgd> values;
  for (int step = 0; step < 400; ++step) {
    EXPECT_EQ(values.begin_step(std::numeric_limits<double>::infinity()), 0);
  }
  const float factor = values.begin_step(1);
  EXPECT_TRUE(std::isfinite(factor) && factor > 0) << factor;
  EXPECT_EQ(factor * values.scale, 1);
}
TEST(LossScaled, RefusesValuesThatLeadToSuchAScale) {
  const auto said = [](float scale, float growth, float backoff) {
    try {
      optimizer::loss_scaled<optimizer::sgd>{{}, scale, growth, backoff}.expect_values();
    } catch (const usage_error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  constexpr float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(said(1, 1, 0.5f), "");
  EXPECT_EQ(said(std::numeric_limits<float>::max(), 2, 0.25f), "");
  for (const float scale : {0.0f, -1.0f, nan, infinity, 1e-40f}) {
    EXPECT_NE(said(scale, 2, 0.5f).find("Fix: scale = 65536"), std::string::npos) << scale;
  }
  for (const float backoff : {0.0f, -1.0f, nan, 1.0f}) {
    EXPECT_NE(said(1, 2, backoff).find("Fix: a backoff"), std::string::npos) << backoff;
  }
  for (const float growth : {0.5f, -2.0f, nan, infinity}) {
    EXPECT_NE(said(1, growth, 0.5f).find("Fix: a backoff"), std::string::npos) << growth;
  }
  optimizer::loss_scaled<optimizer::sgd> never;
  never.interval = 0;
  EXPECT_THROW(never.expect_values(), usage_error);
}

/// Trains with a scaler in the caller's loop. Returns each finite step's mean on the first worker,
/// divided by the scale, and the final residuals, converted to gradients that are not scaled.
template <class Strategy>
remembered_outcome left_to_a_scaler(int workers, const std::vector<int>& told, float growth,
                                    const engine_options<Strategy>& set,
                                    const optimizer::scaled_elsewhere& first = {}) {
  remembered_outcome all;
  std::mutex mutex;
  transport::run_ranks(workers + servers_in<Strategy>(set), [&](transport::in_process& world) {
    arena memory = model_of(world.rank(), small_model());
    auto engine = make_engine<Strategy>(world, memory.tensors(), first, set);
    if (engine.serves()) {
      engine.serve();
      return;
    }
    const auto model = std::vector<float>(memory.parameters().begin(), memory.parameters().end());
    auto values = engine.values();
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
        values.scale /= growth;
        const auto after = residuals_of(engine);
        EXPECT_EQ(after == before, values.restores_residuals());
        for (const auto& each : after) {
          EXPECT_TRUE(std::ranges::all_of(each, [](float value) { return std::isfinite(value); }));
        }
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
  auto set = at_two_servers();
  set.run.deadline = 60;
  for (int workers = 1; workers <= 5; ++workers) {
    SCOPED_TRACE(workers);
    const auto seen = left_to_a_scaler<signs_at_servers>(
        workers, {not_finite, 0, 1, not_finite, not_finite, 2, not_finite, 3}, 8, set);
    EXPECT_EQ(seen.parameters.size(), 4U);
    EXPECT_TRUE(seen == left_to_a_scaler<signs_at_servers>(workers, {0, 1, 2, 3}, 1, set));
  }
}
TEST(ScaledElsewhere, KeepsOnlyInfinitiesOutWhereNobodySkips) {
  optimizer::scaled_elsewhere values;
  values.skipped_step = optimizer::after_skipping::residuals_stay;
  auto set = at_two_servers();
  set.run.deadline = 60;
  for (int workers = 1; workers <= 5; ++workers) {
    SCOPED_TRACE(workers);
    left_to_a_scaler<signs_at_servers>(workers, {0, not_finite, 1}, 1, set, values);
    EXPECT_TRUE(left_to_a_scaler<signs_at_servers>(workers, {0, 1, 2}, 1, set, values) ==
                left_to_a_scaler<signs_at_servers>(workers, {0, 1, 2}, 1, set));
  }
  EXPECT_FALSE(restores_residuals<compression::scaled_sign>(values));
  EXPECT_TRUE(restores_residuals<compression::fp16>(values)) << "it makes infinities of its own";
}
TEST(ScaledElsewhere, RefusesAScaleOfZero) {
  optimizer::scaled_elsewhere values;
  values.scale = 0;
  EXPECT_THROW(left_to_a_scaler<signs_at_servers>(1, {0}, 1, at_two_servers(), values),
               usage_error);
  EXPECT_THROW(left_to_a_scaler<signs_at_servers>(1, {0, 1}, 0, at_two_servers()), usage_error);
}

}  // namespace
}  // namespace tutti::test
