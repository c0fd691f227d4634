#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace tutti {

/// Other options of the strategy from given steps on: dense first and compressed later, by a
/// compressor's density; one architecture first and another later, by the step of
/// architecture::switch_at; larger buckets. How the engine runs, and so the passes of a step, stays
/// as it is. For core/acting.hpp.
/// Cost: at those steps what `engine::replan` costs.
template <class Options>
class replan_at {
 public:
  struct change {
    std::uint64_t step{};
    Options then{};
  };

  explicit replan_at(std::vector<change> changes) : changes_(std::move(changes)) {}

  /// A run that goes on from a checkpoint goes on with what the last change before it said.
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
