#pragma once

#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

#include "support/extent.hpp"
#include "support/training.hpp"
#include "tutti/base/error.hpp"

// Many steps on the virtual clock. Every rank readies its tensors in another order, and waits for
// some of those that it has yet to ready: for all before a forward pass, for any in between.
namespace tutti::test {

inline constexpr int order_ranks = 3;
inline constexpr std::size_t order_tensors = 5;

inline arena small_model() {
  std::vector<arena::declaration> all;
  for (std::size_t i = 0; i < order_tensors; ++i) {
    all.push_back({"tensor" + std::to_string(i), i + 1});
  }
  return arena(all);
}

template <class Strategy>
task rank_of(transport::simulated& world, int steps, engine_options<Strategy> options,
             std::vector<std::uint64_t>& agendas) {
  arena memory = small_model();
  auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(), options);
  co_await engine.started();
  if (!engine.serves()) {
    std::mt19937 random(static_cast<unsigned>(world.rank()));
    for (int step = 0; step < steps; ++step) {
      for (std::size_t i = 0; i < order_tensors && step % 2 == 0; ++i) {  // a forward pass
        co_await engine.arrival(tensor_id(i));
      }
      const auto order = shuffled(order_tensors, world.rank(), step);
      for (std::size_t i = 0; i < order_tensors; ++i) {
        if (random() % 2 == 0) {
          co_await engine.arrival(order[i + random() % (order_tensors - i)]);
        }
        co_await engine.arrival(order[i]);
        co_await world.sleep(1e-6);
        engine.ready(order[i]);
      }
    }
    for (std::size_t i = 0; i < order_tensors; ++i) {
      co_await engine.arrival(tensor_id(i));
    }
    agendas.push_back(engine.agenda());
  }
  co_await engine.close();
}

/// The agenda's hash on every worker, after `steps` steps.
template <class Strategy>
std::vector<std::uint64_t> agendas_after(int steps, engine_options<Strategy> options) {
  std::vector<std::uint64_t> agendas;
  transport::run_simulated(order_ranks + servers_in<Strategy>(options),
                           transport::link{1.25e9, 5e-6}, [&](transport::simulated& world) {
                             return rank_of<Strategy>(world, steps, options, agendas);
                           });
  return agendas;
}

template <class Strategy>
void never_deadlocks(engine_options<Strategy> options = {}) {
  EXPECT_EQ(agendas_after<Strategy>(many_steps, options).size(), std::size_t{order_ranks});
}

template <class Strategy>
void keeps_one_order(engine_options<Strategy> options = {}) {
  const auto agendas = agendas_after<Strategy>(many_steps, options);
  ASSERT_EQ(agendas.size(), std::size_t{order_ranks});
  for (const std::uint64_t each : agendas) {
    EXPECT_EQ(each, agendas.front());
  }
}

template <class Strategy>
void hangs_without_a_leader(engine_options<Strategy> options) {
  EXPECT_THROW(agendas_after<Strategy>(many_steps, options), communication_error);
}

}  // namespace tutti::test
