#pragma once

#include "tutti/role/schedule.hpp"

namespace tutti::schedule {

/// Launches nothing before the whole backward pass has ended, and then everything, in the plan's
/// order.
/// Plan: the order is the plan's.
/// Cost: no overlap with the backward pass.
/// After: bulk-synchronous parallel training, as surveyed by Shi et al., 2020.
struct at_end {
  using role = tutti::role::schedule;
  static constexpr bool limits_in_flight = false;
  static constexpr bool static_order = true;
  static constexpr bool holds_back = true;

  class state {
   public:
    state(const plan& made, const no_options&) : plan_(&made) {}

    void ready(std::uint32_t) {
      if (++full_ == plan_->buckets.size()) {
        full_ = 0;
        going_ = static_cast<std::uint32_t>(plan_->chunks.size());
      }
    }
    void released(std::uint32_t) {}
    std::optional<std::uint32_t> next() {
      if (going_ == 0) {
        return std::nullopt;
      }
      return static_cast<std::uint32_t>(plan_->chunks.size()) - going_--;
    }

   private:
    const plan* plan_;
    std::size_t full_ = 0;
    std::uint32_t going_ = 0;
  };
};
static_assert(schedule_policy<at_end>);

}  // namespace tutti::schedule
