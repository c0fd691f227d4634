// What a framework's adapter has kept of an engine's memories goes to an engine with another plan
// where `load` accepts a checkpoint, and is refused where it does not.
#include "tutti/core/resumed_memories.hpp"

#include <algorithm>
#include <cstddef>
#include <gtest/gtest.h>
#include <span>
#include <string>
#include <vector>

#include "support/errors.hpp"
#include "support/replanning.hpp"
#include "support/training.hpp"
#include "tutti/adapter/trainer_of.hpp"
#include "tutti/architecture/all_gather.hpp"
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/architecture/delayed.hpp"
#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/architecture/sharded.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/compression/block_int8.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/partition/into.hpp"

namespace tutti::test {
namespace {

constexpr int steps = replanned_steps;
constexpr int half = steps / 2;

template <class Strategy>
using trainer =
    adapter::trainer_of<Strategy, transport::in_process, optimizer::sgd, transport::in_process>;

/// What an adapter keeps of one rank: the parameters, and what policies remember.
struct kept {
  std::vector<float> parameters{};
  memories_of_rank memories{};
  bool operator==(const kept&) const = default;
};

template <class Engine>
kept of(Engine& engine, arena& memory) {
  engine.drain();
  kept all{{memory.parameters().begin(), memory.parameters().end()}, {}};
  for (const std::span<float> each : engine.memories()) {
    all.memories.emplace_back(each.begin(), each.end());
  }
  return all;
}

/// Trains all steps, with the second plan in the last half: as a re-plan, or in a second engine
/// that continues from what was kept of the first one. Returns what is kept in the end.
template <class Strategy>
std::vector<kept> trained(int workers, bool resumes) {
  std::vector<kept> all(static_cast<std::size_t>(workers));
  for (const bool second : {false, true}) {
    if (second && !resumes) {
      break;
    }
    transport::in_process::fabric beside(workers);
    transport::run_ranks(workers, [&](transport::in_process& world) {
      kept& mine = all[static_cast<std::size_t>(world.rank())];
      arena memory = model_of(world.rank());
      trainer<Strategy> its(world, beside.end(world.rank()), plan_of<Strategy>(second ? 1 : 0),
                            optimizer_of());
      its.start(memory.tensors());
      auto& engine = its.engine();
      if (second) {
        std::ranges::copy(mine.parameters, memory.parameters().begin());
        engine.resume(half, engine.values(), engine.rate_of_residuals(), {},
                      its.memories_under(plan_of<Strategy>(0), half, mine.memories));
      }
      for (int step = second ? half : 0; step < (resumes && !second ? half : steps); ++step) {
        if (step == half && !resumes) {
          engine.replan(plan_of<Strategy>(1));
        }
        take_step(engine, memory, step);
      }
      mine = of(engine, memory);
    });
  }
  return all;
}

template <class Architecture, class... Policies>
using fused = compose<Architecture, fusion::up_to, partition::into, Policies...>;
using averaged = architecture::all_reduce<collective::canonical>;

template <class Strategy>
void goes_on_as_after_a_replan() {
  for (const int workers : {1, 2, 3, 5}) {
    EXPECT_EQ(trained<Strategy>(workers, true), trained<Strategy>(workers, false))
        << workers << " workers";
  }
}
TEST(ResumedMemories, GoOnUnderAnotherPlan) {
  goes_on_as_after_a_replan<compose<architecture::all_gather, fusion::up_to,
                                    compression::error_feedback<compression::top_k>>>();
  goes_on_as_after_a_replan<fused<architecture::delayed<averaged>>>();
}

/// Returns what a rank says when it continues under one plan from what it kept under the other, or
/// under the same.
template <class Strategy>
std::string said_under(int plan) {
  return errors(1, [plan](transport::in_process& world) {
    arena memory = model_of(world.rank());
    kept mine;
    {
      auto engine =
          make_engine<Strategy>(world, memory.tensors(), optimizer_of(), plan_of<Strategy>(0));
      take_step(engine, memory, 0);
      mine = of(engine, memory);
    }
    transport::in_process::fabric beside(1);
    trainer<Strategy> its(world, beside.end(0), plan_of<Strategy>(plan), optimizer_of());
    its.start(memory.tensors());
    its.memories_under(plan_of<Strategy>(0), 1, mine.memories);
  })[0];
}
TEST(ResumedMemories, OfOwnersAreRefusedWhereOthersOwnThem) {
  using shared = fused<architecture::sharded<collective::canonical>>;
  EXPECT_EQ(said_under<shared>(0), "");
  EXPECT_EQ(said_under<shared>(1),
            "the checkpoint was saved where ranks update parts of other chunks. Fix: load it with "
            "the options that it was saved with, then replan");
  using encoded = fused<architecture::reduce_scatter_all_gather,
                        compression::error_feedback<compression::block_int8>>;
  EXPECT_EQ(said_under<encoded>(0), "");
  EXPECT_EQ(said_under<encoded>(1),
            "the checkpoint's residuals of means belong to other chunks. Fix: load it with the "
            "options that it was saved with, then replan");
}

/// Residuals are of sums of passes.
TEST(ResumedMemories, FollowTheNumberOfPasses) {
  using strategy = compose<architecture::all_gather, fusion::up_to,
                           compression::error_feedback<compression::top_k>>;
  transport::run_ranks(1, [](transport::in_process& world) {
    arena memory = model_of(0);
    auto set = plan_of<strategy>(0);
    set.run.accumulation = 3;
    auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of(), set);
    const memories_of_rank saved{std::vector<float>(total_elements(), 2.0f),
                                 std::vector<float>(total_elements(), 5.0f)};
    const memories_of_rank now = as_memories_of(engine, saved, {.accumulation = 1});
    ASSERT_EQ(now.size(), engine.memories().size());
    EXPECT_EQ(now.front(), std::vector<float>(total_elements(), 6.0f));
    EXPECT_EQ(now[2], saved[1]) << "momenta";
    EXPECT_THROW(as_memories_of(engine, {saved[0]}, {.accumulation = 1}), usage_error);
  });
}

}  // namespace
}  // namespace tutti::test
