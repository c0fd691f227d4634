#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tutti/base/plan.hpp"

namespace tutti::architecture {

/// The step that each tensor last departed in, for architectures that do not do the same in every
/// step. `outgoing` and `incoming` learn from it the step of the chunk that they are given.
class departures {
 public:
  /// `made` must outlive this object.
  explicit departures(const plan& made) : plan_(&made), steps_(made.backward.size()) {}

  void note(std::size_t position, std::uint64_t step) { steps_[position] = step; }
  /// Returns the step in which a chunk was launched, which is that of any tensor in it: all of them
  /// departed before, and none departs again before `incoming`. Under `delay` both verbs are called
  /// as a launch begins, in its step.
  std::uint64_t step_of(const chunk& piece) const {
    for (const std::size_t position : plan_->tensors_of(piece)) {
      return steps_[position];
    }
    return 0;
  }

 private:
  const plan* plan_;
  std::vector<std::uint64_t> steps_;  ///< by position
};

}  // namespace tutti::architecture
