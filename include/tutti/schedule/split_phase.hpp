#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "tutti/schedule/as_ready.hpp"

namespace tutti::schedule {

/// Splits each all-reduce into its two halves. A chunk's reduce-scatter starts when its gradients
/// exist, under the backward pass. All-gathers start when every reduce-scatter of the step has
/// ended on this rank. They run under the next forward pass, in the order in which that needs them,
/// `gathers_at_once` at a time.
/// Plan: none.
/// Cost: the first layers wait for all reduce-scatters.
/// After: Zhang et al., "DeAR: Accelerating Distributed Deep Learning with Fine-Grained All-Reduce
/// Pipelining", ICDCS 2023.
struct split_phase : as_ready {
  static constexpr bool crosses_iterations = true;

  struct options {
    /// Two, because the original begins the next group's all-gather while a module waits for its
    /// own.
    std::size_t gathers_at_once{2};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("gathers_at_once", self.gathers_at_once,
            "all-gathers that may be on their way at once; 0: no limit");
    }
  };

  class state : public as_ready::state {
   public:
    state(const plan& made, const options&) : as_ready::state(made, no_options()) {}
  };

  /// Decides when second halves begin: a machine without input or output, the same on all ranks.
  class second_half {
   public:
    second_half(const plan& made, const options& set)
        : at_once_(set.gathers_at_once != 0 ? set.gathers_at_once : made.chunks.size()) {
      for (std::uint32_t number = 0; number < made.chunks.size(); ++number) {
        if (made.chunks[number].elements > 0) {  // empty chunks exchange nothing
          order_.push_back(number);
        }
      }
      begun_ = order_.size();
      const auto turn_of = [&made](std::uint32_t number) {
        return std::pair(made.chunks[number].priority, number);
      };
      std::sort(order_.begin(), order_.end(),
                [&](std::uint32_t a, std::uint32_t b) { return turn_of(a) < turn_of(b); });
    }

    /// Records that a chunk's first half has ended. All of a step's do before any of the next
    /// step's.
    void half_done() {
      if (++halves_ == order_.size()) {
        halves_ = 0;
        begun_ = 0;
      }
    }
    /// Records that a chunk's second half has ended.
    void done() { --under_way_; }
    /// Returns the chunk whose second half begins now, if any.
    std::optional<std::uint32_t> next() {
      if (begun_ == order_.size() || under_way_ >= at_once_) {
        return std::nullopt;
      }
      ++under_way_;
      return order_[begun_++];
    }

   private:
    std::vector<std::uint32_t> order_{};
    std::size_t at_once_;
    std::size_t begun_ = 0;
    std::size_t under_way_ = 0;
    std::size_t halves_ = 0;
  };
};
static_assert(schedule_policy<split_phase>);

}  // namespace tutti::schedule
