#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace tutti {

/// Changes the options of the strategy at given steps. It may train densely first and compress
/// later (by a compressor's density), use one architecture first and another later (by the step of
/// architecture::switch_at), or enlarge the buckets. `run`, and so the passes of a step, stays as
/// it is. For core/acting.hpp.
/// Cost: that of `engine::replan` at those steps.
template <class Options>
class replan_at {
 public:
  struct change {
    std::uint64_t step{};
    Options then{};
  };

  explicit replan_at(std::vector<change> changes) : changes_(std::move(changes)) {}

  /// Makes a run that is resumed from a checkpoint use the options of the last change before its
  /// step.
  template <class Engine>
  void before_training(Engine& engine) {
    change* last = nullptr;
    for (change& each : changes_) {
      if (each.step < engine.steps() && (last == nullptr || each.step > last->step)) {
        last = &each;
      }
    }
    if (last != nullptr) {
      go(engine, last->then);
    }
  }
  template <class Engine>
  void before_step(Engine& engine, std::uint64_t step) {
    for (change& each : changes_) {
      if (each.step == step) {
        go(engine, each.then);
      }
    }
  }

 private:
  template <class Engine>
  static void go(Engine& engine, Options& then) {
    then.run = engine.asked().run;
    engine.replan(then);
  }

  std::vector<change> changes_;
};

}  // namespace tutti
