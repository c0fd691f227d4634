#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>

namespace tutti {

/// Policies that act on training: a loop calls this at its moments, and each policy hears of those
/// that it has a verb for, in the order in which the policies were given:
/// `before_training(engine)`, `before_epoch(engine, epoch)`, `before_step(engine, step)`,
/// `after_step(engine, step)`, `after_epoch(engine, epoch)`, `after_training(engine)`. Steps are
/// counted from the engine's first, through a checkpoint; a policy may leave the number out.
/// Every worker calls it at the same moments, so that what a policy makes of the same numbers (the
/// step, what monitors have added up over the workers, engine.average) happens on all of them
/// between the same two steps: `engine.change` and `engine.replan` ask for no more.
/// Cost: what the policies do.
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
