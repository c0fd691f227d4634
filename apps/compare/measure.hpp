#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "common/replicas_differ.hpp"
#include "compare/gradient.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/base/units.hpp"
#include "tutti/core/engine.hpp"
#include "tutti/core/engine_options.hpp"
#include "tutti/core/replay.hpp"
#include "tutti/optimizer/sgd.hpp"
#include "tutti/role/compression.hpp"
#include "tutti/role/optimizer.hpp"

namespace compare {

/// A device that computes, beside a host that sleeps meanwhile. It goes on from when it was due and
/// not from when the host woke up, so that lateness does not add up.
template <class Transport>
class slept_device {
 public:
  explicit slept_device(const Transport& world) : world_(&world), due_(world.now()) {}

  /// When it has computed all that it was given.
  tutti::seconds due() const { return due_; }

  void compute(tutti::seconds duration) {
    due_ += duration;
    if (const tutti::seconds left = due_ - world_->now(); left > 0) {
      std::this_thread::sleep_for(std::chrono::duration<double>(left));
    }
  }
  /// It had nothing to do until now.
  void starved() { due_ = std::max(due_, world_->now()); }

 private:
  const Transport* world_;
  tutti::seconds due_;
};

/// A profile's time has the optimizer's step in it, so this one moves the first few elements of a
/// part alone: enough to see models drift apart.
struct profiled_step : tutti::optimizer::sgd {
  static constexpr std::size_t moved = 64;

  template <class Queue>
  void apply(Queue&, std::span<float> parameters, std::span<const float> gradient,
             const tutti::chunk_context&) const {
    for (std::size_t i = 0; i < std::min(moved, parameters.size()); ++i) {
      parameters[i] -= gradient[i];
    }
  }
};
static_assert(tutti::optimizer_policy<profiled_step>);

/// Of each tensor the elements that `profiled_step` moves, whatever becomes of it.
inline std::span<float> moved_of(std::span<float> of_a_tensor) {
  return of_a_tensor.first(std::min(profiled_step::moved, of_a_tensor.size()));
}

/// How far the workers' models are apart, as `tutti::replayed::consensus` says it, by what each of
/// them has seen of its own. Every worker must call it.
template <class Engine>
double consensus(Engine& engine, const std::vector<double>& own) {
  std::vector<double> mean = own;
  engine.average(std::span(mean));
  double squares = 0;
  for (std::size_t i = 0; i < own.size(); ++i) {
    squares += (own[i] - mean[i]) * (own[i] - mean[i]);
  }
  return std::sqrt(engine.average(squares) / static_cast<double>(own.size()));
}

/// A worker's or a server's life in a job that computes as `model` says, by sleeping, and carries
/// its payloads over `world`: a user's training loop, which `tutti::replay` is in other
/// worlds. A thread makes progress, for the device that computes is another. Answers what worker 0
/// saw; bytes are those of the measured iterations' gradients, whenever they leave.
template <class Strategy, class Transport>
tutti::replayed measure(Transport& world, const std::vector<tutti::computation>& model,
                        tutti::engine_options<Strategy> set, const tutti::replay_options& length) {
  using compression = typename tutti::strategy_of<Strategy>::compression;
  constexpr bool crosses =
      tutti::facts::crosses_iterations<typename tutti::strategy_of<Strategy>::schedule>;
  std::vector<tutti::arena::declaration> declared;
  set.profile.backward.clear();
  for (const auto& each : model) {
    declared.push_back({each.name, each.elements, each.shape});
    set.profile.backward.push_back(each.backward);
  }
  set.run.progress = tutti::progress::by_thread;
  tutti::arena memory(declared);
  fill(memory.gradients());
  auto engine =
      tutti::make_engine<Strategy>(world, memory.tensors(), profiled_step(), std::move(set));
  tutti::replayed seen;
  if (engine.serves()) {
    engine.serve();
    return seen;
  }
  slept_device device(world);
  const double times = length.slow.times_of(world.rank());
  const auto wait = [&](std::size_t i) {
    const tutti::seconds before = engine.exposed();
    engine.wait(tutti::tensor_id(i));
    if (engine.exposed() > before) {
      device.starved();
    }
  };
  std::vector<double> own;  // of the model, in the measured iterations
  std::mt19937_64 noise(static_cast<std::uint64_t>(world.rank()));
  tutti::seconds ended = device.due();
  std::uint64_t sent_before = 0;
  for (int step = 0; step <= length.warmup + length.iterations; ++step) {
    for (std::size_t i = 0; !crosses && i < model.size(); ++i) {
      wait(i);
    }
    for (std::size_t i = 0; i < model.size(); ++i) {
      wait(i);
      device.compute(times * model[i].forward);
    }
    if (step == length.warmup + 1) {
      sent_before = engine.counted().bytes_sent;  // with all of the earlier ones'
    }
    for (std::size_t i = model.size(); i-- > 0;) {
      if (!tutti::facts::identity<compression>) {
        fill(memory.tensors()[i].gradient);  // what the last step has left there encodes otherwise
      }
      if constexpr (common::replicas_differ<Strategy>) {
        if (step > length.warmup) {
          std::ranges::copy(moved_of(memory.tensors()[i].parameter), std::back_inserter(own));
        }
        tutti::detail::fill_with_signs(moved_of(memory.tensors()[i].gradient), noise);
      }
      device.compute(times * model[i].backward);
      engine.ready(tutti::tensor_id(i));
    }
    if (step > length.warmup) {
      seen.iterations.push_back(device.due() - ended);
    }
    ended = device.due();
  }
  engine.wait();
  seen.bytes_sent = engine.counted().bytes_sent - sent_before;
  const double its_pace = tutti::pace_of(seen.iterations);
  const double pace = engine.average(its_pace);
  for (tutti::seconds& each : seen.iterations) {
    each = engine.average(each * its_pace) / pace;
  }
  seen.iterations_per_second = pace * engine.workers();
  if constexpr (common::replicas_differ<Strategy>) {
    seen.consensus = consensus(engine, own);
  }
  seen.pushes = engine.pushes();
  seen.planned = engine.planned();
  return seen;
}

}  // namespace compare
