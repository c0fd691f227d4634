// Re-plans that are impossible: what every rank reports, and that its engine has ended.
#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/errors.hpp"
#include "support/replanning.hpp"
#include "support/training.hpp"
#include "tutti/architecture/all_gather.hpp"
#include "tutti/architecture/dense.hpp"
#include "tutti/architecture/local_sgd.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/architecture/push_sum.hpp"
#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/architecture/sharded.hpp"
#include "tutti/architecture/streaming_diloco.hpp"
#include "tutti/architecture/switch_at.hpp"
#include "tutti/base/tensor_rule.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/compression/bf16.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/fp16.hpp"
#include "tutti/compression/none.hpp"
#include "tutti/compression/push_only.hpp"
#include "tutti/compression/select.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/core/checkpoint.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/partition/into.hpp"

namespace tutti::test {
namespace {

using dense = architecture::all_reduce<collective::canonical>;

/// Returns the error of each of `ranks` ranks after `act(engine, memory)`, and expects its engine
/// to have ended.
template <class Strategy, class Act>
std::vector<std::string> said_after(int ranks, engine_options<Strategy> set, Act act) {
  return errors(ranks, [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(), set);
    if (engine.serves()) {
      engine.serve();
      return;
    }
    take_step(engine, memory, 0);
    try {
      act(engine, memory);
    } catch (const std::exception& why) {
      const std::string said = why.what();
      EXPECT_ANY_THROW(engine.wait(tensor_id(0)));
      EXPECT_ANY_THROW(engine.ready(tensor_id(0)));
      throw std::runtime_error(said);
    }
  });
}

TEST(ReplanRefused, OptionsThatDifferAreNamedOnEveryRank) {
  using strategy = compose<dense, fusion::up_to, partition::into>;
  for (const int ranks : {2, 3, 5}) {
    const auto said =
        said_after<strategy>(ranks, plan_of<strategy>(0), [ranks](auto& engine, arena&) {
          auto set = plan_of<strategy>(1);
          set.partition.bytes += engine.worker() + 1 == ranks ? 8 : 0;
          engine.replan(set);
        });
    for (const std::string& each : said) {
      EXPECT_EQ(each, "partition.bytes is 7000 on rank 0 and 7008 on rank " +
                          std::to_string(ranks - 1) + ". Fix: set it alike on every rank");
    }
  }
}

TEST(ReplanRefused, WhoServesCannotChange) {
  using strategy = compose<architecture::parameter_server<>, fusion::up_to>;
  const auto said = said_after<strategy>(5, plan_of<strategy>(0), [](auto& engine, arena&) {
    auto set = plan_of<strategy>(1);
    set.architecture.servers = 1;
    engine.replan(set);
  });
  for (const std::string& each : said) {
    EXPECT_NE(each.find("a replan cannot change which ranks train and which serve. Fix: replan "
                        "with as many servers as before"),
              std::string::npos)
        << each;
  }
}

TEST(ReplanRefused, WhatIsRefusedEndsEveryRank) {
  using strategy = compose<architecture::local_sgd<collective::canonical>, fusion::up_to>;
  const auto said = said_after<strategy>(3, plan_of<strategy>(0), [](auto& engine, arena&) {
    auto set = plan_of<strategy>(1);
    set.architecture.period = 0;
    engine.replan(set);
  });
  for (const std::string& each : said) {
    EXPECT_NE(each.find("architecture::local_sgd: the period must be at least 1 step. Fix: 4"),
              std::string::npos)
        << each;
  }
}

/// After a pass of each tensor, or once some tensors' gradients have arrived and others' are to
/// come.
TEST(ReplanRefused, InTheMiddleOfAStepIsRefused) {
  using strategy = compose<dense, fusion::up_to>;
  auto set = plan_of<strategy>(0);
  set.fusion.bytes = 0;
  for (const unsigned passes : {2U, 1U}) {
    set.run.accumulation = passes;
    const auto said = said_after<strategy>(2, set, [passes](auto& engine, arena&) {
      if (passes == 1) {
        engine.wait();
        engine.ready(tensor_id(1));
      }
      engine.replan(plan_of<strategy>(1));
    });
    for (const std::string& each : said) {
      EXPECT_NE(each.find("a plan cannot change in the middle of a step"), std::string::npos)
          << each;
    }
  }
}

TEST(ReplanRefused, ToNoPassIsRefused) {
  using strategy = compose<dense, fusion::up_to>;
  const auto said = said_after<strategy>(2, plan_of<strategy>(0), [](auto& engine, arena&) {
    auto set = plan_of<strategy>(1);
    set.run.accumulation = 0;
    engine.replan(set);
  });
  for (const std::string& each : said) {
    EXPECT_NE(each.find("run.accumulation = 0 leaves"), std::string::npos) << each;
  }
}

/// Lent memory belongs to its bucket, and the plan that made the bucket ends.
TEST(ReplanRefused, WhileAGradientIsLent) {
  using strategy =
      compose<architecture::sharded<collective::ring, architecture::gradients::given_back>,
              fusion::up_to>;
  const auto said = errors(2, [](transport::in_process& world) {
    arena memory(
        declarations(), 1, [](std::size_t n) { return line_vector<float>(n); },
        [](std::size_t) { return std::span<float>(); });
    auto engine =
        make_engine<strategy>(world, memory.tensors(), optimizer_of(), plan_of<strategy>(0));
    engine.gradient(tensor_id(0));
    engine.replan(plan_of<strategy>(1));
  });
  for (const std::string& each : said) {
    EXPECT_NE(each.find("a plan cannot change while a lent gradient is being written"),
              std::string::npos)
        << each;
  }
}

TEST(ReplanRefused, WhoDoesNotCallIsNamed) {
  using strategy = compose<dense, fusion::up_to>;
  auto set = plan_of<strategy>(0);
  set.run.deadline = 1;
  set.run.progress = progress::by_thread;
  std::atomic<bool> ended{false};
  const auto said = said_after<strategy>(3, set, [&ended](auto& engine, arena&) {
    engine.wait();
    while (engine.worker() == 1 && !ended) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    try {
      engine.replan(plan_of<strategy>(1));
    } catch (...) {
      ended = true;
      throw;
    }
  });
  for (const std::string& each : said) {
    EXPECT_EQ(each, "rank 1 has not called replan(), or has not come as far in it");
  }
}

/// Returns the errors of two ranks that resume a run of one step with the compressor's start
/// postponed.
template <class Strategy, class StepOf>
std::vector<std::string> said_of_a_later_step(StepOf step_of) {
  std::vector<std::string> files(2);
  for (const bool later : {false, true}) {
    const auto said = errors(2, [&](transport::in_process& world) {
      arena memory = model_of(world.rank());
      auto set = plan_of<Strategy>(0);
      step_of(set) = later ? 2 : 0;
      auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(), set);
      std::string& mine = files[static_cast<std::size_t>(world.rank())];
      if (later) {
        std::istringstream in(mine);
        load(engine, in);
      }
      take_step(engine, memory, later);
      engine.wait();
      if (!later) {
        std::ostringstream out;
        save(engine, out);
        mine = out.str();
      }
    });
    if (later) {
      return said;
    }
  }
  return {};
}

/// Postpones the step from which on the strategy compresses, after one step has been compressed.
/// All ranks report `why`, or continue if that is empty.
template <class Strategy, class StepOf>
void putting_off_says(StepOf step_of, const std::string& why) {
  const auto said =
      said_after<Strategy>(2, plan_of<Strategy>(0), [step_of](auto& engine, arena& memory) {
        engine.wait();
        auto set = plan_of<Strategy>(1);
        step_of(set) = 2;
        engine.replan(set);
        take_step(engine, memory, 1);
        engine.wait();
      });
  for (const std::string& each : said) {
    EXPECT_EQ(each.empty(), why.empty()) << each;
    EXPECT_NE(each.find(why), std::string::npos) << each;
  }
  for (const std::string& each : said_of_a_later_step<Strategy>(step_of)) {
    EXPECT_EQ(each.empty(), why.empty()) << each;
    EXPECT_NE(each.find(why), std::string::npos) << each;
  }
}

/// A residual would wait for a step that may never come.
TEST(ReplanRefused, BackToWhatHasNoUseForWhatIsRemembered) {
  using architecture::switch_at;
  using compression::error_feedback;
  using compression::select;
  const auto start = [](auto& set) -> auto& { return set.compression.start; };
  const auto step = [](auto& set) -> auto& { return set.architecture.step; };

  using rounded = select<every_tensor, error_feedback<compression::fp16>, compression::none>;
  putting_off_says<compose<rounded, dense, fusion::up_to>>(
      start,
      "compression::select: a start at step 2 is still to come, and would hold back what the "
      "chosen tensors' compressor has remembered in 1 steps. Fix: use a start that has passed");
  using rounded_twice = error_feedback<select<every_tensor, compression::fp16, compression::bf16>>;
  putting_off_says<compose<rounded_twice, dense, fusion::up_to>>(start, "");

  using selected = error_feedback<compression::top_k>;
  using selects_later = switch_at<architecture::dense, architecture::all_gather>;
  const std::string why =
      "architecture::switch_at: a switch at step 2 would undo the one made, and what the "
      "compressor has left out in 1 steps would wait for it. Fix: use a step that has passed";
  putting_off_says<compose<selected, selects_later, fusion::up_to>>(step, why);
  using in_three_turns =
      compose<selected, switch_at<architecture::dense, selects_later>, fusion::up_to>;
  putting_off_says<in_three_turns>(
      [](auto& set) -> auto& { return set.architecture.second.step; }, why);
  using encodes_means_later =
      switch_at<architecture::all_gather, architecture::reduce_scatter_all_gather>;
  putting_off_says<compose<selected, encodes_means_later, fusion::up_to>>(step, why);
  using pushed = compression::push_only<selected>;
  putting_off_says<compose<pushed, encodes_means_later, fusion::up_to>>(step, "");

  using drifts_later = switch_at<dense, architecture::local_sgd<collective::canonical>>;
  putting_off_says<compose<drifts_later, fusion::up_to>>(
      step,
      "architecture::switch_at: a switch at step 2 would undo the one made, but after 1 steps "
      "every rank has a model of its own. Fix: use a step that has passed");
}

/// Two tensors are two buckets or two pieces of one, which are in other fragments.
TEST(ReplanRefused, WhileAMeanIsOnItsWayAsIsACheckpoint) {
  using strategy = compose<architecture::streaming_diloco<dense>, fusion::up_to, partition::into>;
  engine_options<strategy> apart;
  apart.fusion.bytes = 0;
  apart.partition.bytes = 400;
  apart.architecture.period = 4;
  apart.architecture.fragments = 2;
  engine_options<strategy> together = apart;
  together.fusion.bytes = 800;
  const auto said = [&](const engine_options<strategy>& next) {
    return errors(1, [&](transport::in_process& world) {
      arena memory = model_of(0, {{"a", 100}, {"b", 100}});
      std::stringstream file;
      {
        auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of(), apart);
        take_step(engine, memory, 0);
        take_step(engine, memory, 1);
        save(engine, file);
      }
      auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of(), next);
      load(engine, file);
    })[0];
  };
  EXPECT_EQ(said(apart), "");
  EXPECT_EQ(said(together),
            "architecture::streaming_diloco: after 2 steps the mean of a fragment is on its way. "
            "Fix: replan 1 steps later, or use a smaller overlap");
}

/// Weights that follow from other receivers than there were would shift the mean of all models.
TEST(ReplanRefused, ToOtherReceiversThanThoseThatWeightsFollowFrom) {
  using architecture::receiver;
  using strategy = compose<architecture::push_sum, fusion::up_to>;
  using options = decltype(engine_options<strategy>::architecture);
  const auto said = [](receiver was, const options& wanted) {
    auto set = plan_of<strategy>(0);
    set.architecture.receiver = was;
    return said_after<strategy>(3, set, [&set, &wanted](auto& engine, arena&) {
      auto next = set;
      next.architecture = wanted;
      engine.replan(next);
    });
  };
  const std::string why =
      "architecture::push_sum: after 1 steps ranks have weights that follow from who has sent to "
      "whom. Fix: keep the receiver and the seed, or change them before the first step";
  const auto expect_refused = [&](receiver was, const options& wanted) {
    for (const std::string& each : said(was, wanted)) {
      EXPECT_NE(each.find(why), std::string::npos) << each;
    }
  };
  expect_refused(receiver::random, options{.receiver = receiver::random, .seed = 2});
  expect_refused(receiver::random, options{.receiver = receiver::next});
  expect_refused(receiver::next, options{.receiver = receiver::random});
  const std::vector<std::string> none(3);
  EXPECT_EQ(said(receiver::random, options{.receiver = receiver::random}), none);
  EXPECT_EQ(said(receiver::next, options{.receiver = receiver::exponential, .seed = 2}), none);
}

}  // namespace
}  // namespace tutti::test
