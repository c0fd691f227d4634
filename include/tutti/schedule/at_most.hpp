#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "tutti/base/error.hpp"
#include "tutti/base/options.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/role/schedule.hpp"
#include "tutti/schedule/at_once.hpp"
#include "tutti/schedule/in_order.hpp"

namespace tutti::schedule {

/// Keeps at most `exchanges` exchanges on their way at the same time, in the order of the backward
/// pass.
/// Plan: the order is the plan's, so no rank has to lead; a fusion at run time gathers no more
/// chunks than may go.
/// Cost: with one exchange at a time, no two latencies overlap; a late bucket holds up those after
/// it.
/// After: the serial link of Shi, Chu and Li, "MG-WFBP", INFOCOM 2019; two at once: Shi, Chu and
/// Li, "Exploiting Simultaneous Communications", INFOCOM 2021.
struct at_most {
  using role = tutti::role::schedule;
  static constexpr bool limits_in_flight = true;
  static constexpr bool static_order = true;
  static constexpr bool holds_back = true;

  struct options {
    std::size_t exchanges{1};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("exchanges", self.exchanges,
            "chunks that may be on their way at once; 0: as many as pay off, by the profile's "
            "times of one message");
    }
  };

  [[gnu::cold]] static options planned(const options& set, const plan& made, const profile& known) {
    return {set.exchanges == 0 ? as_many_as_pay(made, known) : set.exchanges};
  }

  class state {
   public:
    /// Throws usage_error if `exchanges` is 0, so that nothing might ever go.
    state(const plan& made, const options& set)
        : waiting_(made, no_options()),
          free_(static_cast<std::ptrdiff_t>(std::min<std::size_t>(set.exchanges, PTRDIFF_MAX))) {
      if (set.exchanges == 0) {
        throw usage_error(
            "schedule.exchanges of 0 sends nothing unless a plan sets the number. Fix: 1");
      }
    }

    void ready(std::uint32_t bucket) { waiting_.ready(bucket); }
    void released(std::uint32_t) { ++free_; }
    std::optional<std::uint32_t> next() {
      if (free_ <= 0) {
        return std::nullopt;
      }
      const auto chunk = waiting_.next();
      free_ -= chunk ? 1 : 0;
      return chunk;
    }
    bool admits(std::uint32_t) const { return free_ > 0; }
    void take(std::uint32_t) { --free_; }

   private:
    in_order::state waiting_;
    std::ptrdiff_t free_;  ///< exchanges that may start; below zero if rank 0 let one more go
  };
};
static_assert(schedule_policy<at_most>);

}  // namespace tutti::schedule
