#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/oracle.hpp"
#include "tutti/core/engine.hpp"
#include "tutti/optimizer/sgd.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/transport/in_process.hpp"
#include "tutti/transport/simulated.hpp"

namespace tutti::test {

inline optimizer::sgd optimizer_of(sgd_values set = {}) {
  return {.learning_rate = set.learning_rate,
          .momentum = set.momentum,
          .weight_decay = set.weight_decay};
}

/// Returns the optimizer for a strategy, without momentum where the compressor keeps one on each
/// rank.
template <class Strategy>
optimizer::sgd optimizer_for(sgd_values set = {}) {
  if constexpr (facts::keeps_momentum<typename strategy_of<Strategy>::compression>) {
    set.momentum = 0;
  }
  return optimizer_of(set);
}

/// Rank 0 starts with the oracle's parameters and every other rank with rubbish, which the initial
/// broadcast must replace.
inline void initialise(arena& memory, int rank) {
  std::size_t element = 0;
  for (float& each : memory.parameters()) {
    each = rank == 0 ? initial(element++) : 99.0f;
  }
}

/// Returns a model's memory with `initialise`d parameters.
inline arena model_of(int rank, const std::vector<arena::declaration>& forward = declarations()) {
  arena memory(forward);
  initialise(memory, rank);
  return memory;
}

inline void backward(arena& memory, int worker, int step) {
  std::size_t element = 0;
  for (float& each : memory.gradients()) {
    each = gradient(worker, step, element++);
  }
}

/// Returns the tensors in another order for each rank and step.
inline std::vector<tensor_id> shuffled(std::size_t tensors, int rank, int step) {
  std::vector<tensor_id> order;
  for (std::size_t i = 0; i < tensors; ++i) {
    order.push_back(tensor_id(i));
  }
  std::mt19937 random(static_cast<unsigned>(rank * 7919 + step));
  std::ranges::shuffle(order, random);
  return order;
}

template <class Strategy>
constexpr bool has_servers = facts::has_servers<typename strategy_of<Strategy>::architecture>;

template <class Strategy>
int servers_in(const engine_options<Strategy>& options) {
  if constexpr (has_servers<Strategy>) {
    return options.architecture.servers;
  } else {
    return 0;
  }
}

/// The state of each worker after training.
struct outcome {
  explicit outcome(int workers, int servers = 0)
      : parameters(static_cast<std::size_t>(workers)),
        agendas(parameters.size()),
        bytes(static_cast<std::size_t>(workers + servers)),
        optimizer_bytes(bytes.size()) {}

  std::vector<std::vector<float>> parameters;
  std::vector<std::uint64_t> agendas;
  std::vector<std::uint64_t> bytes;          ///< that each rank sent, including servers
  std::vector<std::size_t> optimizer_bytes;  ///< on each rank, including servers
};

/// Takes a step of one worker: a forward pass that waits for every tensor, then gradients in an
/// order that differs from rank to rank and step to step.
template <class Engine>
void take_step(Engine& engine, arena& memory, int step) {
  for (std::size_t i = 0; i < memory.tensors().size(); ++i) {
    engine.wait(tensor_id(i));
  }
  backward(memory, engine.worker(), step);
  for (const tensor_id id : shuffled(memory.tensors().size(), engine.worker(), step)) {
    engine.ready(id);
  }
}

/// Trains one rank.
template <class Strategy, class Transport>
void train_a_rank(Transport& world, int steps, const engine_options<Strategy>& options,
                  optimizer::sgd values, outcome& result,
                  const std::vector<arena::declaration>& forward) {
  arena memory = model_of(world.rank(), forward);
  auto engine = make_engine<Strategy>(world, memory.tensors(), values, options);
  const auto rank = static_cast<std::size_t>(world.rank());
  result.optimizer_bytes[rank] = engine.report().optimizer_bytes;
  if (engine.serves()) {
    engine.serve();
    result.bytes[rank] = engine.counted().bytes_sent;
    return;
  }
  for (int step = 0; step < steps; ++step) {
    take_step(engine, memory, step);
  }
  engine.wait();
  result.parameters[rank].assign(memory.parameters().begin(), memory.parameters().end());
  result.agendas[rank] = engine.agenda();
  result.bytes[rank] = engine.counted().bytes_sent;
}

/// Trains on threads.
template <class Strategy>
outcome train_on_threads(int workers, int steps, engine_options<Strategy> options = {},
                         optimizer::sgd values = optimizer_for<Strategy>(),
                         const std::vector<arena::declaration>& forward = declarations()) {
  outcome result(workers, servers_in<Strategy>(options));
  transport::run_ranks(workers + servers_in<Strategy>(options), [&](transport::in_process& world) {
    train_a_rank<Strategy>(world, steps, options, values, result, forward);
  });
  return result;
}

/// Trains one rank on the transport's own clock, as a coroutine.
template <class Strategy, class Transport>
task rank_on_a_clock(Transport& world, int steps, engine_options<Strategy> options, outcome& result,
                     const std::vector<arena::declaration>& forward) {
  arena memory = model_of(world.rank(), forward);
  auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_for<Strategy>(), options);
  co_await engine.started();
  const auto rank = static_cast<std::size_t>(world.rank());
  if (engine.serves()) {
    co_await engine.close();
    result.bytes[rank] = engine.counted().bytes_sent;
    co_return;
  }
  for (int step = 0; step < steps; ++step) {
    for (std::size_t i = 0; i < memory.tensors().size(); ++i) {
      co_await engine.arrival(tensor_id(i));
    }
    backward(memory, engine.worker(), step);
    for (const tensor_id id : shuffled(memory.tensors().size(), world.rank(), step)) {
      co_await world.sleep(1e-6);
      engine.ready(id);
    }
  }
  for (std::size_t i = 0; i < memory.tensors().size(); ++i) {
    co_await engine.arrival(tensor_id(i));
  }
  result.parameters[rank].assign(memory.parameters().begin(), memory.parameters().end());
  result.agendas[rank] = engine.agenda();
  result.bytes[rank] = engine.counted().bytes_sent;
  co_await engine.close();
}

/// Trains on the virtual clock, over links of 10 Gbit/s and 50 microseconds.
template <class Strategy>
outcome train_in_simulation(int workers, int steps, engine_options<Strategy> options = {},
                            const std::vector<arena::declaration>& forward = declarations()) {
  outcome result(workers, servers_in<Strategy>(options));
  transport::run_simulated(workers + servers_in<Strategy>(options), transport::link{1.25e9, 50e-6},
                           [&](transport::simulated& world) {
                             return rank_on_a_clock<Strategy>(world, steps, options, result,
                                                              forward);
                           });
  return result;
}

}  // namespace tutti::test
