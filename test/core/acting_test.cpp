// Tests of policies that act on training: when their hooks are called, and that what they change
// takes effect on every rank at the same step.
#include "tutti/core/acting.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <vector>

#include "support/training.hpp"
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/architecture/model_averaging.hpp"
#include "tutti/architecture/switch_at.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/core/batch_by_noise.hpp"
#include "tutti/core/checkpoint.hpp"
#include "tutti/core/rate_by_schedule.hpp"
#include "tutti/core/replan_at.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/monitor/counters.hpp"
#include "tutti/optimizer/loss_scaled.hpp"

namespace tutti::test {
namespace {

// ---- the order of hooks

/// Records every hook that is called, after its own name.
struct recorder {
  char name;
  std::string* heard;

  void say(const std::string& what) { *heard += name + what + " "; }

  void before_training(auto&) { say("<training"); }
  void before_epoch(auto&, std::size_t epoch) { say("<epoch" + std::to_string(epoch)); }
  void before_step(auto&, std::uint64_t step) { say("<step" + std::to_string(step)); }
  void after_step(auto&, std::uint64_t step) { say(">step" + std::to_string(step)); }
  void after_epoch(auto&, std::size_t epoch) { say(">epoch" + std::to_string(epoch)); }
  void after_training(auto&) { say(">training"); }
};
/// Has only one hook, and without the step's number.
struct of_steps_alone {
  std::string* heard;
  void after_step(auto&) { *heard += "c "; }
};

TEST(Acting, PoliciesHearOfTrainingInTheirOrder) {
  std::string heard;
  transport::run_ranks(1, [&](transport::in_process& world) {
    arena memory = model_of(0);
    auto engine = make_engine<compose<>>(world, memory.tensors(), optimizer_of());
    acting policies(recorder{'a', &heard}, of_steps_alone{&heard}, recorder{'b', &heard});
    policies.before_training(engine);
    int step = 0;
    for (std::size_t epoch = 0; epoch < 2; ++epoch) {
      policies.before_epoch(engine, epoch);
      for (const int end = step + 1; step < end; ++step) {
        policies.before_step(engine);
        take_step(engine, memory, step);
        policies.after_step(engine);
      }
      policies.after_epoch(engine, epoch);
    }
    policies.after_training(engine);
  });
  EXPECT_EQ(heard,
            "a<training b<training "
            "a<epoch0 b<epoch0 a<step0 b<step0 a>step0 c b>step0 a>epoch0 b>epoch0 "
            "a<epoch1 b<epoch1 a<step1 b<step1 a>step1 c b>step1 a>epoch1 b>epoch1 "
            "a>training b>training ");
}

// ---- switches

/// The agenda, the plan and the model of each rank after each step.
struct seen {
  std::vector<std::uint64_t> agendas{};
  std::vector<std::uint64_t> plans{};
  std::vector<std::vector<float>> models{};
};

constexpr int steps = 8;

template <class Strategy, class... Policies>
std::vector<seen> trained_with(int workers, const engine_options<Strategy>& set,
                               Policies... policies) {
  std::vector<seen> all(static_cast<std::size_t>(workers));
  transport::run_ranks(workers, [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(), set);
    acting act(policies...);
    act.before_training(engine);
    auto& mine = all[static_cast<std::size_t>(world.rank())];
    for (int step = 0; step < steps; ++step) {
      act.before_step(engine);
      std::size_t element = 0;
      for (float& each : memory.gradients()) {
        each = gradient_of_few_digits(world.rank(), step, element++);
      }
      for (std::size_t id = memory.tensors().size(); id-- > 0;) {
        engine.ready(tensor_id(id));
      }
      engine.wait();
      act.after_step(engine);
      mine.agendas.push_back(engine.agenda());
      mine.plans.push_back(engine.planned().hash);
      mine.models.emplace_back(memory.parameters().begin(), memory.parameters().end());
    }
  });
  return all;
}

void expect_a_switch_at(const std::vector<seen>& all, std::size_t step) {
  for (const seen& each : all) {
    EXPECT_EQ(each.agendas, all[0].agendas);
    EXPECT_EQ(each.plans, all[0].plans);
    for (std::size_t i = 1; i < each.plans.size(); ++i) {
      EXPECT_EQ(each.plans[i] != each.plans[i - 1], i == step) << i;
    }
  }
}

TEST(ReplanAt, LargerBucketsFromAStepOnChangeNoSum) {
  using strategy = compose<fusion::up_to>;
  using options = engine_options<strategy>;
  options small;
  small.fusion.bytes = 64;
  options large;
  large.fusion.bytes = 1 << 20;
  for (int workers = 1; workers <= 5; ++workers) {
    const auto all =
        trained_with<strategy>(workers, small, replan_at<options>({{.step = 3, .then = large}}));
    expect_a_switch_at(all, 3);
    for (const seen& each : all) {
      EXPECT_EQ(each.models.back(), trained(workers, steps, {}, gradient_of_few_digits));
    }
  }
}

/// A density of 1 is a dense warm-up; afterwards a tenth is sent.
TEST(ReplanAt, ADenseWarmUpIsDenseTraining) {
  using strategy = compose<compression::error_feedback<compression::top_k>>;
  using options = engine_options<strategy>;
  options dense;
  dense.compression.density = 1;
  options sparse;
  sparse.compression.density = 0.1;
  const auto all =
      trained_with<strategy>(3, dense, replan_at<options>({{.step = 5, .then = sparse}}));
  expect_a_switch_at(all, 5);
  for (const seen& each : all) {
    EXPECT_EQ(each.models[4], trained(3, 5, {}, gradient_of_few_digits));
    EXPECT_NE(each.models[5], trained(3, 6, {}, gradient_of_few_digits));
    EXPECT_EQ(each.models.back(), all[0].models.back()) << "replicas stay equal";
  }
}

/// A run that is saved after a switch continues in engines that were made with the options from
/// before it.
TEST(ReplanAt, ARunThatGoesOnFromACheckpointHasSwitched) {
  using strategy = compose<compression::error_feedback<compression::top_k>>;
  using options = engine_options<strategy>;
  options dense;
  dense.compression.density = 1;
  options sparse;
  sparse.compression.density = 0.1;
  const replan_at<options> switching({{.step = 1, .then = dense}, {.step = 2, .then = sparse}});
  const auto whole = trained_with<strategy>(3, dense, switching);
  transport::run_ranks(3, [&](transport::in_process& world) {
    std::stringstream saved;
    const auto train = [&](int first, int end) {
      arena memory = model_of(world.rank());
      auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of(), dense);
      if (first > 0) {
        load(engine, saved);
      }
      acting act(switching);
      act.before_training(engine);
      for (int step = first; step < end; ++step) {
        act.before_step(engine);
        std::size_t element = 0;
        for (float& each : memory.gradients()) {
          each = gradient_of_few_digits(world.rank(), step, element++);
        }
        for (std::size_t id = memory.tensors().size(); id-- > 0;) {
          engine.ready(tensor_id(id));
        }
        engine.wait();
        act.after_step(engine);
      }
      save(engine, saved);
      return std::vector<float>(memory.parameters().begin(), memory.parameters().end());
    };
    train(0, 5);
    EXPECT_EQ(train(5, steps), whole[0].models.back());
  });
}

/// Training is synchronous SGD first and SMA later; from the switch on each rank has a model of its
/// own.
TEST(ReplanAt, SmaAfterSynchronousTraining) {
  using strategy =
      compose<architecture::switch_at<architecture::replicated<>, architecture::model_averaging<>>>;
  using options = engine_options<strategy>;
  options never;
  never.architecture.step = 1'000'000;
  options now = never;
  now.architecture.step = 4;
  const auto all = trained_with<strategy>(3, never, replan_at<options>({{.step = 4, .then = now}}));
  expect_a_switch_at(all, 4);
  for (const seen& each : all) {
    EXPECT_EQ(each.models[3], trained(3, 4, {}, gradient_of_few_digits));
  }
  EXPECT_NE(all[1].models[4], all[0].models[4]);
}

// ---- a batch by the noise scale

/// The part of an image's gradient that all images share; the rest is noise.
constexpr float agreed = 5;

/// The gradients' noise scale is about three times the images of a step. The batch grows to its
/// limit on all ranks alike, and the mean stays a mean over images. Other policies that change
/// other things before and after it work as well.
TEST(BatchByNoise, GrowsOnAllRanksAtOneStepAndKeepsTheMean) {
  using strategy = compose<fusion::up_to>;
  using options = engine_options<strategy>;
  constexpr int workers = 3;
  constexpr unsigned most = 2;
  std::vector<std::vector<unsigned>> passes(workers);
  std::vector<std::vector<float>> models(workers);
  std::vector<float> rates(workers);
  transport::run_ranks(workers, [&](transport::in_process& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    arena memory = model_of(world.rank());
    const options own;
    auto engine = make_engine<strategy>(
        world, memory.tensors(), optimizer::sgd{9.0f, 0.5f}, {},
        monitor::tee(
            monitor::counters(),
            monitor::noise_scale(memory.tensors(), {.batch_size = 2, .workers = workers})));
    const replan_at<options> fusing({{.step = 1, .then = {.fusion = {.bytes = 64}}},
                                     {.step = 4, .then = {.fusion = {.bytes = 1 << 20}}}});
    acting act(rate_by_schedule({.highest = 0.125f}), fusing,
               batch_by_noise(options(), 2, most, rate_follows::square_root));
    act.before_training(engine);
    for (int step = 0; step < 6; ++step) {
      act.before_step(engine);
      const unsigned now = act.policy<batch_by_noise>().passes();
      passes[rank].push_back(now);
      for (float& each : memory.gradients()) {
        each = 0;
      }
      for (unsigned pass = 0; pass < now; ++pass) {
        std::size_t element = 0;
        for (float& each : memory.gradients()) {
          each += agreed + gradient(world.rank() + 10 * static_cast<int>(pass), step, element++);
        }
        for (std::size_t id = memory.tensors().size(); id-- > 0;) {
          engine.ready(tensor_id(id));
        }
        engine.wait();
      }
      act.after_step(engine);
      EXPECT_EQ(engine.asked().fusion.bytes, step < 1 ? own.fusion.bytes : step < 4 ? 64 : 1 << 20);
    }
    models[rank].assign(memory.parameters().begin(), memory.parameters().end());
    rates[rank] = engine.values().learning_rate;
  });
  for (std::size_t rank = 0; rank < workers; ++rank) {
    EXPECT_EQ(passes[rank], (std::vector<unsigned>{1, 1, most, most, most, most}));
    EXPECT_EQ(models[rank], models[0]);
    EXPECT_FLOAT_EQ(rates[rank], 0.125f * std::sqrt(2.0f)) << "twice as many images";
  }
  std::vector<double> x(total_elements());
  std::vector<double> m(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<double>(initial(i));
    for (int step = 0; step < 6; ++step) {
      const int taken = step < 2 ? 1 : static_cast<int>(most);
      double mean = 0;
      for (int worker = 0; worker < workers; ++worker) {
        for (int pass = 0; pass < taken; ++pass) {
          mean += static_cast<double>(agreed + gradient(worker + 10 * pass, step, i)) /
                  (workers * taken);
        }
      }
      m[i] = 0.5 * m[i] + mean;
      x[i] -= (step < 2 ? 0.125 : 0.125 * std::sqrt(2.0)) * m[i];
    }
    ASSERT_NEAR(models[0][i], x[i], 1e-3) << i;
  }
  EXPECT_THROW((batch_by_noise(options(), 0, 1)), usage_error);
  EXPECT_THROW((batch_by_noise(options(), 1, 0)), usage_error);
}

/// A rate may change while gradients of the step before are on their way, whose end is counted.
TEST(Acting, RatesLeaveTheLossScaleToStepsThatHaveNotEnded) {
  constexpr std::uint64_t finite = 5;
  transport::run_ranks(2, [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    optimizer::loss_scaled<optimizer::sgd> values;
    values.scale = 2;
    auto engine = make_engine<compose<>>(world, memory.tensors(), values);
    acting act(rate_by_schedule({.steps = 100, .falling = optimizer::falling::linear}));
    act.before_training(engine);
    for (std::uint64_t step = 0; step < finite; ++step) {
      act.before_step(engine);
      take_step(engine, memory, static_cast<int>(step));
      act.after_step(engine);
    }
    engine.wait();
    EXPECT_EQ(engine.values().finite_steps, finite);
  });
}

}  // namespace
}  // namespace tutti::test
