#pragma once

#include <vector>

#include "tutti/role/schedule.hpp"

namespace tutti::schedule {

/// Launches each chunk when its gradients exist, in the order in which they become ready on this
/// rank.
/// Plan: none.
/// Cost: none.
/// After: wait-free back-propagation, Zhang et al., "Poseidon", ATC 2017.
struct as_ready {
  using role = tutti::role::schedule;
  static constexpr bool limits_in_flight = false;
  static constexpr bool static_order = false;

  class state {
   public:
    state(const plan& made, const no_options&) : plan_(&made), waiting_(made.chunks.size() + 1) {}

    void ready(std::uint32_t bucket) {
      const auto& filled = plan_->buckets[bucket];
      for (std::uint32_t i = 0; i < filled.chunks; ++i) {
        waiting_[tail_] = filled.first_chunk + i;
        tail_ = (tail_ + 1) % waiting_.size();
      }
    }
    void released(std::uint32_t) {}
    std::optional<std::uint32_t> next() {
      if (head_ == tail_) {
        return std::nullopt;
      }
      const std::uint32_t chunk = waiting_[head_];
      head_ = (head_ + 1) % waiting_.size();
      return chunk;
    }

   private:
    const plan* plan_;
    std::vector<std::uint32_t> waiting_;
    std::size_t head_ = 0;
    std::size_t tail_ = 0;
  };
};
static_assert(schedule_policy<as_ready>);

}  // namespace tutti::schedule
