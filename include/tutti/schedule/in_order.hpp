#pragma once

#include <vector>

#include "tutti/role/schedule.hpp"

namespace tutti::schedule {

/// Launches a bucket when all gradients of it and of every bucket before it in the plan are ready.
/// Plan: the order is the plan's, so no rank has to lead.
/// Cost: a late bucket holds up those after it.
/// After: Li et al., "PyTorch Distributed", VLDB 2020.
struct in_order {
  using role = tutti::role::schedule;
  static constexpr bool limits_in_flight = false;
  static constexpr bool static_order = true;
  static constexpr bool holds_back = true;

  class state {
   public:
    state(const plan& made, const no_options&) : plan_(&made), full_(made.buckets.size()) {}

    void ready(std::uint32_t bucket) { full_[bucket] = 1; }
    void released(std::uint32_t) {}
    std::optional<std::uint32_t> next() {
      if (full_.empty() || full_[bucket_] == 0) {
        return std::nullopt;
      }
      const auto& going = plan_->buckets[bucket_];
      const std::uint32_t chunk = going.first_chunk + piece_;
      if (++piece_ == going.chunks) {
        piece_ = 0;
        full_[bucket_] = 0;
        bucket_ = (bucket_ + 1) % full_.size();
      }
      return chunk;
    }

   private:
    const plan* plan_;
    std::vector<char> full_;
    std::size_t bucket_ = 0;
    std::uint32_t piece_ = 0;
  };
};
static_assert(schedule_policy<in_order>);

}  // namespace tutti::schedule
