#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "common/replicas_differ.hpp"
#include "compare/gradient.hpp"
#include "compare/processes.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/push_counts.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/base/units.hpp"
#include "tutti/core/engine.hpp"
#include "tutti/core/engine_options.hpp"
#include "tutti/core/replay.hpp"
#include "tutti/optimizer/sgd.hpp"
#include "tutti/role/compression.hpp"
#include "tutti/role/optimizer.hpp"

namespace compare {

/// A device that computes, imitated by a host that sleeps. A computation starts when the one before
/// was due, and not when the host woke up from it, so that lateness does not add up.
template <class Transport>
class slept_device {
 public:
  explicit slept_device(const Transport& world) : world_(&world), due_(world.now()) {}

  /// When the device has finished all computations that it was given.
  tutti::seconds due() const { return due_; }

  void compute(tutti::seconds duration) {
    due_ += duration;
    if (const tutti::seconds left = due_ - world_->now(); left > 0) {
      std::this_thread::sleep_for(std::chrono::duration<double>(left));
    }
  }
  /// Records that the device had nothing to do until now, so that the next computation starts now.
  void starved() { due_ = std::max(due_, world_->now()); }

 private:
  const Transport* world_;
  tutti::seconds due_;
};

/// The optimizer of every world. A profile's times include the optimizer's step. In a real world
/// `moves_few` is therefore set, and only the first elements of a part are updated: enough to see
/// how far models drift apart.
struct profiled_sgd : tutti::optimizer::sgd {
  static constexpr std::size_t few = 64;

  bool moves_few = false;

  template <class Queue>
  void apply(Queue& queue, std::span<float> parameters, std::span<const float> gradient,
             const tutti::chunk_context& where) const {
    if (!moves_few) {
      sgd::apply(queue, parameters, gradient, where);
      return;
    }
    for (std::size_t i = 0; i < std::min(few, parameters.size()); ++i) {
      parameters[i] -= gradient[i];
    }
  }
};
static_assert(tutti::optimizer_policy<profiled_sgd>);

/// Returns elements of a tensor that `profiled_sgd` updates even if `moves_few` is set, however the
/// tensor is divided or fused.
inline std::span<float> moved_of(std::span<float> of_a_tensor) {
  return of_a_tensor.first(std::min(profiled_sgd::few, of_a_tensor.size()));
}

/// The interface of an engine that a training loop uses, with the strategy erased.
class trainer {
 public:
  trainer() = default;
  trainer(const trainer&) = delete;
  trainer& operator=(const trainer&) = delete;

  virtual bool serves() const = 0;
  virtual void serve() = 0;
  virtual void ready(tutti::tensor_id) = 0;
  virtual void wait(tutti::tensor_id) = 0;
  virtual void wait() = 0;
  virtual tutti::seconds exposed() const = 0;
  virtual int workers() const = 0;
  virtual void average(std::span<double> values) = 0;
  virtual std::uint64_t bytes_sent() const = 0;
  virtual tutti::push_counts pushes() = 0;
  virtual const tutti::plan& planned() const = 0;

 protected:
  ~trainer() = default;
};

template <class Engine>
class trainer_by final : public trainer {
 public:
  explicit trainer_by(Engine& engine) : engine_(&engine) {}

  bool serves() const override { return engine_->serves(); }
  void serve() override { engine_->serve(); }
  void ready(tutti::tensor_id id) override { engine_->ready(id); }
  void wait(tutti::tensor_id id) override { engine_->wait(id); }
  void wait() override { engine_->wait(); }
  tutti::seconds exposed() const override { return engine_->exposed(); }
  int workers() const override { return engine_->workers(); }
  void average(std::span<double> values) override { engine_->average(values); }
  std::uint64_t bytes_sent() const override { return engine_->counted().bytes_sent; }
  tutti::push_counts pushes() override { return engine_->pushes(); }
  const tutti::plan& planned() const override { return engine_->planned(); }

 private:
  Engine* engine_;
};

/// What a training loop must know about the strategy.
struct trained_as {
  bool crosses{};  ///< the next forward pass waits for each tensor separately
  bool encodes{};  ///< payloads depend on the gradients, which are made anew in every step
  bool drifts{};   ///< workers' models may differ
};

/// Runs a worker or a server of a job in real time: computes as `model` says, by sleeping, and
/// carries its payloads over `world`. This is a user's training loop, as `tutti::replay` is in the
/// other worlds. Returns what worker 0 observed. Bytes are those of the measured iterations'
/// gradients, whenever they are sent.
tutti::replayed measure(trainer& engine, const any_world& world, tutti::arena& memory,
                        const std::vector<tutti::computation>& model,
                        const tutti::replay_options& length, trained_as how);

/// Measures a strategy. Unless the options say otherwise, a thread moves communication on, because
/// the device that computes is not this CPU.
template <class Strategy>
tutti::replayed measure(any_world& world, const std::vector<tutti::computation>& model,
                        tutti::engine_options<Strategy> set, const tutti::replay_options& length) {
  using strategy = tutti::strategy_of<Strategy>;
  std::vector<tutti::arena::declaration> declared;
  set.profile.backward.clear();
  for (const auto& each : model) {
    declared.push_back({each.name, each.elements, each.shape});
    set.profile.backward.push_back(each.backward);
  }
  if (set.run.progress == tutti::progress::automatic) {
    set.run.progress = tutti::progress::by_thread;
  }
  tutti::arena memory(declared);
  fill(memory.gradients());
  profiled_sgd step_of_few;
  step_of_few.moves_few = true;
  auto engine = tutti::make_engine<Strategy>(world, memory.tensors(), step_of_few, std::move(set),
                                             tutti::agenda_log(nullptr));
  trainer_by its(engine);
  return measure(its, world, memory, model, length,
                 {.crosses = tutti::facts::crosses_iterations<typename strategy::schedule>,
                  .encodes = !tutti::facts::identity<typename strategy::compression>,
                  .drifts = common::replicas_differ<Strategy>});
}

}  // namespace compare
