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

/// A rank's view of interference: it votes for another way of exchanging when a window of steps had
/// less than `threshold` of the reference's throughput. The first window since a switch in which
/// anything was exchanged is the reference, and nobody votes on it.
class interference {
 public:
  static constexpr double default_threshold = 0.8;

  explicit interference(double threshold = default_threshold) : threshold_(threshold) {}

  /// Takes a window's throughput. Whether there is a reference already, and so a vote to be held,
  /// is the same on all ranks.
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

  /// More than half of the workers want it.
  static constexpr bool passes(int votes, int workers) { return votes > workers / 2; }

 private:
  double threshold_;
  double reference_ = 0;
  double current_ = 0;
};

/// Goes from one of a strategy's options to the next when most workers see interference: another
/// topology or hash of collective::by_graph, another spec of collective::by_size, other pieces.
/// After every `window` steps each worker compares its throughput with the reference, votes are
/// added up, and if more than half agree all re-plan between the same two steps, when nothing is in
/// flight, so that no message is lost and every sum is made by one way or the other, whole. The
/// engine's monitor is monitor::throughput. Once the last options are in use nothing is
/// measured any more.
/// Cost: a round of small messages a window; a switch, what `engine::replan` costs.
/// After: KungFu's CheckInterference (session/adaptiveStrategies.go), Mai et al., OSDI 2020, where
/// the reference is a throughput that is measured alike and the threshold 0.8.
template <class Options>
class switch_by_vote {
 public:
  /// Options in the order in which they are tried once the engine's own are interfered with. Throws
  /// usage_error for a window without steps.
  switch_by_vote(std::uint64_t window, std::vector<Options> then,
                 interference watched = interference())
      : window_(window), then_(std::move(then)), watched_(watched) {
    if (window == 0) {
      throw usage_error("switch_by_vote: a window of 0 steps. Fix: a window of at least 1 step");
    }
  }

  /// Every worker calls it after each of its steps. Between windows it is a look at a number; at
  /// the end of one it waits for every tensor.
  template <class Engine>
  void after_step(Engine& engine) {
    if (window_is_over()) {
      engine.drain();
      if (compares(engine) && passes(engine, engine.average(watched_.votes() ? 1 : 0))) {
        engine.replan(next(engine));
        switched(engine);
      }
    }
  }
  /// What a step does, for coroutines, once every tensor of it has arrived.
  template <class Engine>
  task stepped(Engine& engine) {
    if (window_is_over() && compares(engine)) {
      double votes = watched_.votes() ? 1 : 0;
      task asking = engine.averaged(votes);
      co_await asking;
      if (passes(engine, votes)) {
        task replanning = engine.replanned(next(engine));
        co_await replanning;
        switched(engine);
      }
    }
  }

  /// How often it has switched.
  std::size_t switches() const { return switches_; }
  /// The step that the last switch came after; 0 before there was one.
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
  /// How the engine runs stays as it is.
  template <class Engine>
  const Options& next(const Engine& engine) {
    then_[switches_].run = engine.asked().run;
    return then_[switches_];
  }
  template <class Engine>
  void switched(Engine& engine) {
    ++switches_;
    last_switch_ = steps_;
    watched_.forget();
    engine.observed().forget();
  }

  std::uint64_t window_;
  std::vector<Options> then_;
  interference watched_;
  std::uint64_t steps_ = 0;
  std::size_t switches_ = 0;
  std::uint64_t last_switch_ = 0;
};

}  // namespace tutti
