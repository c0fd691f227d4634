#pragma once

#include <cstddef>
#include <vector>

#include "tutti/base/units.hpp"

namespace tutti {

/// When workers of a replay measure who wait for nobody.
enum class window {
  common,  ///< all at once: who is ahead goes on until all have warmed up, and have measured
  own,     ///< each after its own warm-up, as processes do that hear nothing of the others' steps
};

namespace detail {

/// How many of the workers that share a window have come so far.
struct window_progress {
  int workers{};
  int warm{};
  int measured{};
};

/// Which iterations of one worker are measured, and how long they take. In a common window a worker
/// makes at most `most` times as many as it was asked for, so that one beside it which is slower by
/// orders of magnitude costs no more than that.
class replay_window {
 public:
  static constexpr std::size_t most = 10;

  replay_window(int warmup, int iterations, window_progress& all)
      : unmeasured_(static_cast<std::size_t>(warmup) + 1),
        asked_(static_cast<std::size_t>(iterations)),
        all_(&all) {}

  /// The first iteration, which fills the pipeline, belongs to the warm-up.
  bool is_open() const { return !ends_.empty(); }
  bool is_over() const {
    return ends_.size() > asked_ &&
           (all_->measured == all_->workers || ends_.size() > most * asked_);
  }
  /// The number of the iteration that is under way, from 0 where the window opened.
  std::size_t measured() const { return ends_.size() - 1; }
  /// It is one of as many as were asked for.
  bool counts() const { return is_open() && measured() < asked_; }

  void end_iteration(seconds now) {
    if (is_open()) {
      if (!is_over()) {  // otherwise all others ended while this one was under way
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

  /// As many as were asked for; where more were measured each is a mean over its share of them.
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
