#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

#include "support/extent.hpp"
#include "support/training.hpp"
#include "tutti/base/error.hpp"
#include "tutti/optimizer/one_bit_adam.hpp"
#include "tutti/role/architecture.hpp"

// Runs many steps on the virtual clock. Every rank readies its tensors in another order and waits
// for some that it has yet to ready: for all before a forward pass, for any of them in between.
namespace tutti::test {

inline constexpr int order_ranks = 3;
inline constexpr int warm_up_steps = 100;  ///< of an optimizer whose ranks exchange momenta

/// The number of elements of each tensor.
using tensor_lengths = std::vector<std::size_t>;

inline arena model_of(const tensor_lengths& sizes) {
  std::vector<arena::declaration> all;
  for (const std::size_t each : sizes) {
    all.push_back({"tensor" + std::to_string(all.size()), each});
  }
  return arena(all);
}

/// Returns an optimizer that suits the architecture: where momenta are exchanged, one-bit Adam,
/// whose warm-up ends before most steps of a long run.
template <class Strategy>
auto optimizer_in_order() {
  if constexpr (facts::exchanges_momenta<typename strategy_of<Strategy>::architecture>) {
    return optimizer::one_bit_adam{.freeze_step = warm_up_steps};
  } else {
    return optimizer_of();
  }
}

/// The hash of the agenda, the order of all launches, on every worker, and the bytes that each rank
/// has sent from its start to its end.
struct ordered_run {
  std::vector<std::uint64_t> agendas{};
  std::vector<std::uint64_t> bytes{};
};

template <class Strategy>
task rank_of(transport::simulated& world, int steps, engine_options<Strategy> options,
             const tensor_lengths& sizes, ordered_run& result) {
  arena memory = model_of(sizes);
  const std::size_t order_tensors = sizes.size();
  auto engine =
      make_engine<Strategy>(world, memory.tensors(), optimizer_in_order<Strategy>(), options);
  co_await engine.started();
  if (!engine.serves()) {
    std::mt19937 random(static_cast<unsigned>(world.rank()));
    std::vector<tensor_id> order = shuffled(order_tensors, world.rank(), 0);
    for (int step = 0; step < steps; ++step) {
      for (std::size_t i = 0; i < order_tensors && step % 2 == 0; ++i) {  // a forward pass
        co_await engine.arrival(tensor_id(i));
      }
      std::ranges::shuffle(order, random);
      std::size_t element = 0;
      for (std::size_t i = 0; i < order_tensors; ++i) {
        if (random() % 2 == 0) {
          co_await engine.arrival(order[i + random() % (order_tensors - i)]);
        }
        co_await engine.arrival(order[i]);
        for (float& each : memory.tensors()[index(order[i])].gradient) {
          each = gradient(world.rank(), step, element++);  // compressors select no zeros
        }
        co_await world.sleep(1e-6);
        engine.ready(order[i]);
      }
    }
    for (std::size_t i = 0; i < order_tensors; ++i) {
      co_await engine.arrival(tensor_id(i));
    }
    result.agendas.push_back(engine.agenda());
  }
  co_await engine.close();
  result.bytes[static_cast<std::size_t>(world.rank())] = engine.counted().bytes_sent;
}

template <class Strategy>
ordered_run run_in_order(int workers, int steps, engine_options<Strategy> options,
                         const tensor_lengths& sizes) {
  ordered_run result;
  const int ranks = workers + servers_in<Strategy>(options);
  result.bytes.resize(static_cast<std::size_t>(ranks));
  transport::run_simulated(ranks, transport::link{1.25e9, 5e-6}, [&](transport::simulated& world) {
    return rank_of<Strategy>(world, steps, options, sizes, result);
  });
  return result;
}

/// Returns the hash of the agenda on every worker after `steps` steps.
template <class Strategy>
std::vector<std::uint64_t> agendas_after(int steps, engine_options<Strategy> options) {
  return run_in_order<Strategy>(order_ranks, steps, options, {1, 2, 3, 4, 5}).agendas;
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

/// Expects the transport itself to find that no message is under way while a rank waits. Any other
/// failure does not count as a hang.
template <class Strategy>
void hangs_without_a_leader(engine_options<Strategy> options) {
  std::string said = "all that was handed in arrived";
  try {
    agendas_after<Strategy>(many_steps, options);
  } catch (const communication_error& failed) {
    said = failed.what();
  }
  EXPECT_TRUE(said.starts_with("nothing moves: rank ")) << said;
}

}  // namespace tutti::test
