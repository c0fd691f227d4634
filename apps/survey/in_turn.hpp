#pragma once

#include <cstdint>
#include <optional>

#include "tutti/schedule/in_order.hpp"

namespace survey {

/// One message on the link at a time, in the order of the backward pass: a communication stream as
/// the survey's programs have it.
/// Plan: the order is the plan's. Cost: no two latencies overlap.
/// After: the link of Shi, Chu and Li, "MG-WFBP", INFOCOM 2019.
struct in_turn {
  using role = tutti::role::schedule;
  static constexpr bool limits_in_flight = true;
  static constexpr bool static_order = true;

  class state {
   public:
    state(const tutti::plan& made, const tutti::no_options& none) : waiting_(made, none) {}

    void ready(std::uint32_t bucket) { waiting_.ready(bucket); }
    void released(std::uint32_t) { busy_ = false; }
    std::optional<std::uint32_t> next() {
      if (busy_) {
        return std::nullopt;
      }
      const auto chunk = waiting_.next();
      busy_ = chunk.has_value();
      return chunk;
    }
    bool admits(std::uint32_t) const { return !busy_; }
    void take(std::uint32_t) { busy_ = true; }

   private:
    tutti::schedule::in_order::state waiting_;
    bool busy_ = false;
  };
};
static_assert(tutti::schedule_policy<in_turn>);

}  // namespace survey
