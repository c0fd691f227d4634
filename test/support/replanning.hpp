#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <utility>
#include <vector>

#include "support/oracle.hpp"
#include "support/training.hpp"
#include "tutti/architecture/pair_averaging.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/role/fusion.hpp"

/// Training that changes its plan on the way, over any transport of host memory.
namespace tutti::test {

inline constexpr int replanned_steps = 8;

/// Returns options for one of two plans that have no boundary in common.
template <class Strategy>
engine_options<Strategy> plan_of(int which) {
  engine_options<Strategy> set;
  set.run.deadline = 20;
  set.fusion.bytes = which == 0 ? 100 : 40'000;
  if constexpr (requires { set.partition.bytes; }) {
    set.partition.bytes = which == 0 ? 50'000 : 7'000;
  }
  if constexpr (requires { set.schedule.credit; }) {
    set.schedule.credit = which == 0 ? 1 : 60'000;
  }
  if constexpr (requires { set.architecture.servers; }) {
    using architecture::placed_by;
    set.architecture.servers = 2;
    set.architecture.placed_by = which == 0 ? placed_by::naive : placed_by::built_in;
  }
  return set;
}

/// Changes to the other plan before each step of `changes`, while gradients of the last step may
/// still be on the way.
template <class Strategy>
class plans_in_turn {
 public:
  explicit plans_in_turn(std::vector<int> changes) : changes_(std::move(changes)) {}

  template <class Engine>
  void before(int step, Engine& engine) {
    if (std::ranges::count(changes_, step) == 0) {
      return;
    }
    const auto chunks = engine.planned().chunks.size();
    which_ = 1 - which_;
    engine.replan(plan_of<Strategy>(which_));
    EXPECT_NE(engine.planned().hash, 0u);
    if (!facts::at_run_time<typename Strategy::fusion>) {
      EXPECT_NE(engine.planned().chunks.size(), chunks);
    }
    EXPECT_EQ(engine.steps(), static_cast<std::uint64_t>(step));
  }

 private:
  std::vector<int> changes_;
  int which_ = 0;
};

/// Returns this worker's parameters after all steps, or nothing on a server.
template <class Strategy, class Transport>
std::vector<float> trained_over(Transport& world, const std::vector<int>& changes) {
  arena memory = model_of(world.rank());
  auto engine =
      make_engine<Strategy>(world, memory.tensors(), optimizer_of(), plan_of<Strategy>(0));
  if (engine.serves()) {
    engine.serve();
    return {};
  }
  plans_in_turn<Strategy> plans(changes);
  for (int step = 0; step < replanned_steps; ++step) {
    plans.before(step, engine);
    take_step(engine, memory, step);
  }
  engine.wait();
  engine.drain();
  return {memory.parameters().begin(), memory.parameters().end()};
}

/// Ranks that average in pairs are not synchronised. Here they take their steps one after the
/// other, so that it is known which model each partner serves.
template <class Strategy, class Transport>
std::vector<float> paired_in_turns(Transport& world, const std::vector<int>& changes) {
  arena memory = model_of(world.rank());
  auto engine =
      make_engine<Strategy>(world, memory.tensors(), optimizer_of(), plan_of<Strategy>(0));
  plans_in_turn<Strategy> plans(changes);
  for (int step = 0; step < replanned_steps; ++step) {
    plans.before(step, engine);
    for (int turn = 0; turn < world.size(); ++turn) {
      if (turn == world.rank()) {
        take_step(engine, memory, step);
        engine.wait();
      }
      engine.average(0);  // the other ranks wait here meanwhile
    }
  }
  return {memory.parameters().begin(), memory.parameters().end()};
}

/// Returns every rank's parameters, computed by a plain loop.
inline std::vector<std::vector<float>> paired_in_one_process(int ranks, sgd_values set = {}) {
  const std::size_t n = total_elements();
  std::vector<float> first(n);
  for (std::size_t i = 0; i < n; ++i) {
    first[i] = initial(i);
  }
  std::vector<std::vector<float>> all(static_cast<std::size_t>(ranks), first);
  std::vector<std::vector<float>> momenta(all.size(), std::vector<float>(n, 0.0f));
  for (int step = 0; step < replanned_steps; ++step) {
    for (int rank = 0; rank < ranks; ++rank) {
      auto& x = all[static_cast<std::size_t>(rank)];
      auto& m = momenta[static_cast<std::size_t>(rank)];
      const int pair = architecture::pair_of(1, rank, static_cast<std::uint64_t>(step), ranks);
      for (std::size_t i = 0; i < n; ++i) {
        if (ranks > 1) {
          x[i] = 0.5f * x[i] + 0.5f * all[static_cast<std::size_t>(pair)][i];
        }
        m[i] = set.momentum * m[i] + (gradient(rank, step, i) + set.weight_decay * x[i]);
        x[i] -= set.learning_rate * m[i];
      }
    }
  }
  return all;
}

}  // namespace tutti::test
