#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>

namespace tutti {

/// Runs policies that act on training, such as rate_by_schedule, batch_by_noise and replan_at. The
/// training loop calls this object at its hooks, and each hook calls the verb of its name on every
/// policy that has it, in the order in which the policies were given: `before_training(engine)`,
/// `before_epoch(engine, epoch)`, `before_step(engine, step)`, `after_step(engine, step)`,
/// `after_epoch(engine, epoch)`, `after_training(engine)`. `step` counts from the engine's first
/// step and goes on across a checkpoint. A policy may leave the argument `step` out.
/// Every worker must call the hooks at the same points of its loop. A policy that decides by
/// numbers which are equal on all workers (the step, what monitors add up over the workers,
/// engine.average) then acts on all of them between the same two steps, as `engine.change` and
/// `engine.replan` require.
/// Cost: that of the policies.
/// After: the hooks of KungFu's policies, Mai et al., OSDI 2020.
template <class... Policies>
class acting {
 public:
  explicit acting(Policies... its) : its_(std::move(its)...) {}

  template <class Engine>
  void before_training(Engine& engine) {
    engine.drain();
    step_ = engine.steps();
    each([&](auto& its) {
      if constexpr (requires { its.before_training(engine); }) {
        its.before_training(engine);
      }
    });
  }
  template <class Engine>
  void before_epoch(Engine& engine, std::size_t epoch) {
    each([&](auto& its) {
      if constexpr (requires { its.before_epoch(engine, epoch); }) {
        its.before_epoch(engine, epoch);
      }
    });
  }
  template <class Engine>
  void before_step(Engine& engine) {
    each([&](auto& its) {
      if constexpr (requires { its.before_step(engine, step_); }) {
        its.before_step(engine, step_);
      } else if constexpr (requires { its.before_step(engine); }) {
        its.before_step(engine);
      }
    });
  }
  template <class Engine>
  void after_step(Engine& engine) {
    each([&](auto& its) {
      if constexpr (requires { its.after_step(engine, step_); }) {
        its.after_step(engine, step_);
      } else if constexpr (requires { its.after_step(engine); }) {
        its.after_step(engine);
      }
    });
    ++step_;
  }
  template <class Engine>
  void after_epoch(Engine& engine, std::size_t epoch) {
    each([&](auto& its) {
      if constexpr (requires { its.after_epoch(engine, epoch); }) {
        its.after_epoch(engine, epoch);
      }
    });
  }
  template <class Engine>
  void after_training(Engine& engine) {
    each([&](auto& its) {
      if constexpr (requires { its.after_training(engine); }) {
        its.after_training(engine);
      }
    });
  }

  template <class Policy>
  const Policy& policy() const {
    return std::get<Policy>(its_);
  }

 private:
  template <class Call>
  void each(Call call) {
    std::apply([&](auto&... its) { (call(its), ...); }, its_);
  }

  std::tuple<Policies...> its_;
  std::uint64_t step_ = 0;
};

}  // namespace tutti
