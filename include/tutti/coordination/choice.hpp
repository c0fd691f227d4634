#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

#include "tutti/base/options.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/fusion.hpp"
#include "tutti/role/schedule.hpp"

namespace tutti::coordination {

/// What goes next of what is ready: the schedule's choice and, where a fusion decides at run time,
/// what that gathers of it.
template <schedule_policy Schedule, fusion_policy Fusion>
class choice {
  struct planned_fusion {
    planned_fusion(const plan&, const options_of<Fusion>&) {}
  };
  static auto gathering() {
    if constexpr (facts::at_run_time<Fusion>) {
      return std::type_identity<typename Fusion::state>();
    } else {
      return std::type_identity<planned_fusion>();
    }
  }

 public:
  static constexpr bool gathers = facts::at_run_time<Fusion>;
  static constexpr bool limits_in_flight = Schedule::limits_in_flight;
  static constexpr bool has_cycle = facts::has_cycle<Fusion>;

  choice(const plan& made, const options_of<Schedule>& schedule, const options_of<Fusion>& fusion)
      : schedule_(made, schedule), fusion_(made, fusion) {}

  void ready(std::uint32_t bucket) { schedule_.ready(bucket); }
  void released(std::uint32_t chunk) { schedule_.released(chunk); }
  std::optional<std::uint32_t> next() { return schedule_.next(); }

  /// There is credit for the chunk, whose turn somebody else has chosen.
  bool admits(std::uint32_t chunk) const requires limits_in_flight {
    return schedule_.admits(chunk);
  }
  void take(std::uint32_t chunk) requires limits_in_flight { schedule_.take(chunk); }

  /// Steps whose launches are not those of all later ones.
  std::size_t unsettled_steps() const {
    if constexpr (requires { fusion_.unsettled_steps(); }) {
      return fusion_.unsettled_steps();
    } else {
      return 0;
    }
  }

  /// Zero: there is nothing to wait for.
  seconds cycle() const requires has_cycle { return fusion_.cycle(); }
  /// Whatever may go is there for `next_launch`, and has taken its credit.
  void stage() requires gathers {
    while (const auto chunk = schedule_.next()) {
      fusion_.stage(*chunk);
    }
  }
  /// The chunks of the next launch, by ascending number; valid until the next call.
  std::span<const std::uint32_t> next_launch() requires gathers { return fusion_.next(); }

 private:
  typename Schedule::state schedule_;
  typename decltype(gathering())::type fusion_;
};

}  // namespace tutti::coordination
