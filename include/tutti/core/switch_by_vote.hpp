#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/task.hpp"
#include "tutti/monitor/throughput.hpp"

namespace tutti {

/// A rank's judgement of interference: it votes for another way of exchanging if a window of steps
/// had less than `threshold` times the reference throughput. The reference is the first window
/// since the last switch in which anything was exchanged; no vote is held on that window.
class interference {
 public:
  static constexpr double default_threshold = 0.8;

  explicit interference(double threshold = default_threshold) : threshold_(threshold) {}

  /// Takes in a window's throughput. Returns whether there was a reference already, so that a vote
  /// is to be held; all ranks agree on this.
  bool compares(double throughput) {
    const bool has_reference = reference_ > 0;
    if (!has_reference) {
      reference_ = throughput;
    }
    current_ = throughput;
    return has_reference;
  }
  bool votes() const { return current_ < threshold_ * reference_; }
  double reference() const { return reference_; }
  void forget() { reference_ = 0; }

  /// Returns whether more than half of the workers have voted for a switch.
  static constexpr bool passes(int votes, int workers) { return votes > workers / 2; }

 private:
  double threshold_;
  double reference_ = 0;
  double current_ = 0;
};

/// Switches to the next of several options of a strategy when most workers see interference. The
/// options may differ in the topology or hash of collective::by_graph, the spec of
/// collective::by_size, or the pieces of a partition. After every `window` steps each worker
/// compares its throughput with the reference, and votes are added up. If more than half agree, all
/// ranks re-plan between the same two steps. Nothing is in flight then, so that no message is lost
/// and every sum is made entirely in the old way or in the new one. Once the last options are in
/// use, nothing is measured any more. The engine's monitor must be monitor::throughput.
/// Cost: a round of small messages a window; a switch costs what `engine::replan` costs.
/// After: KungFu's CheckInterference (session/adaptiveStrategies.go), Mai et al., OSDI 2020, where
/// the reference is measured likewise and the threshold is 0.8.
template <class Options>
class switch_by_vote {
 public:
  /// `then` are the options to try, in order, once there is interference under the engine's own.
  /// Throws usage_error if `window` is 0.
  switch_by_vote(std::uint64_t window, std::vector<Options> then,
                 interference watched = interference())
      : window_(window), then_(std::move(then)), watched_(watched) {
    if (window == 0) {
      throw usage_error(
          "switch_by_vote: the window must not be 0 steps. Fix: a window of at least 1 step");
    }
  }

  /// Every worker calls it after each of its steps. It only counts steps, except at the end of a
  /// window, where it waits for every tensor.
  template <class Engine>
  void after_step(Engine& engine) {
    if (window_is_over()) {
      engine.drain();
      if (compares(engine) && passes(engine, engine.average(watched_.votes() ? 1 : 0))) {
        engine.replan(next(engine));
        switched();
      }
    }
  }
  /// What `after_step` does, for coroutines, once every tensor of the step has arrived.
  template <class Engine>
  task stepped(Engine& engine) {
    if (window_is_over() && compares(engine)) {
      double votes = watched_.votes() ? 1 : 0;
      task asking = engine.averaged(votes);
      co_await asking;
      if (passes(engine, votes)) {
        task replanning = engine.replanned(next(engine));
        co_await replanning;
        switched();
      }
    }
  }

  /// The number of switches so far.
  std::size_t switches() const { return switches_; }
  /// The number of steps after which the last switch came; 0 if there was none.
  std::uint64_t last_switch() const { return last_switch_; }
  const interference& watched() const { return watched_; }

 private:
  bool window_is_over() { return switches_ < then_.size() && ++steps_ % window_ == 0; }
  template <class Engine>
  bool compares(Engine& engine) {
    return watched_.compares(engine.observed().take(engine.planned()));
  }
  template <class Engine>
  static bool passes(const Engine& engine, double mean) {
    return interference::passes(static_cast<int>(std::lround(mean * engine.workers())),
                                engine.workers());
  }
  /// Returns the next options, with the engine's present run options.
  template <class Engine>
  const Options& next(const Engine& engine) {
    then_[switches_].run = engine.asked().run;
    return then_[switches_];
  }
  void switched() {
    ++switches_;
    last_switch_ = steps_;
    watched_.forget();
  }

  std::uint64_t window_;
  std::vector<Options> then_;
  interference watched_;
  std::uint64_t steps_ = 0;
  std::size_t switches_ = 0;
  std::uint64_t last_switch_ = 0;
};

}  // namespace tutti
