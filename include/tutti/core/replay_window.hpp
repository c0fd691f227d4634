#pragma once

#include <cstddef>
#include <vector>

#include "tutti/base/units.hpp"

namespace tutti {

/// When workers that do not wait for each other are measured in a replay.
enum class window {
  common,  ///< all at once: a fast one goes on until all have warmed up, and all are measured
  own,     ///< each after its own warm-up, as processes do that do not know of each other's steps
};

namespace detail {

/// How far the workers that share a window have come.
struct window_progress {
  int workers{};
  int warm{};
  int measured{};
};

/// Decides which iterations of one worker are measured, and how long each takes. In a common window
/// a worker makes at most `most` times as many as were asked for, which limits the cost of another
/// that is slower by orders of magnitude.
class replay_window {
 public:
  static constexpr std::size_t most = 10;

  replay_window(int warmup, int iterations, window_progress& all)
      : unmeasured_(static_cast<std::size_t>(warmup) + 1),
        asked_(static_cast<std::size_t>(iterations)),
        all_(&all) {}

  /// Returns whether iterations are measured now. The first iteration, which fills the pipeline, is
  /// never measured but belongs to the warm-up.
  bool is_open() const { return !ends_.empty(); }
  bool is_over() const {
    return ends_.size() > asked_ &&
           (all_->measured == all_->workers || ends_.size() > most * asked_);
  }
  /// The number of the present iteration, counted from 0 when the window opened.
  std::size_t measured() const { return ends_.size() - 1; }
  /// Returns whether the present iteration is one of as many as were asked for.
  bool counts() const { return is_open() && measured() < asked_; }

  void end_iteration(seconds now) {
    if (is_open()) {
      if (!is_over()) {  // otherwise all others have ended during this iteration
        ends_.push_back(now);
        all_->measured += measured() == asked_ ? 1 : 0;
      }
      return;
    }
    ++warmed_;
    all_->warm += warmed_ == unmeasured_ ? 1 : 0;
    if (warmed_ >= unmeasured_ && (all_->warm == all_->workers || warmed_ >= most * unmeasured_)) {
      ends_.push_back(now);
    }
  }

  /// Returns the lengths of as many iterations as were asked for. If more were measured, each is a
  /// mean over its share of them.
  std::vector<seconds> iterations() const {
    std::vector<seconds> all;
    const std::size_t made = measured();
    for (std::size_t i = 0; i < asked_; ++i) {
      const seconds taken = ends_[(i + 1) * made / asked_] - ends_[i * made / asked_];
      all.push_back(taken * static_cast<double>(asked_) / static_cast<double>(made));
    }
    return all;
  }

 private:
  std::size_t unmeasured_;
  std::size_t asked_;
  std::size_t warmed_ = 0;
  std::vector<seconds> ends_{};
  window_progress* all_;
};

}  // namespace detail

}  // namespace tutti
