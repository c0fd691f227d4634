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

/// Chooses what goes next of what is ready: by the schedule and, where the fusion decides at run
/// time, by what the fusion gathers of the schedule's choice.
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

  /// Whether there is credit for a chunk whose turn was decided elsewhere, as by
  /// coordination::learned.
  bool admits(std::uint32_t chunk) const requires limits_in_flight {
    return schedule_.admits(chunk);
  }
  void take(std::uint32_t chunk) requires limits_in_flight { schedule_.take(chunk); }

  /// Returns how many first steps there are whose launches differ from those of later steps.
  std::size_t unsettled_steps() const {
    if constexpr (requires { fusion_.unsettled_steps(); }) {
      return fusion_.unsettled_steps();
    } else {
      return 0;
    }
  }

  /// Returns the time between two looks at what is ready; zero if nothing need wait for one.
  seconds cycle() const requires has_cycle { return fusion_.cycle(); }
  /// Takes credit for every chunk that the schedule lets start, and hands it to the fusion, which
  /// groups such chunks in `next_launch`.
  void stage() requires gathers {
    while (const auto chunk = schedule_.next()) {
      fusion_.stage(*chunk);
    }
  }
  /// Returns the chunks of the next launch, by ascending number; valid until the next call.
  std::span<const std::uint32_t> next_launch() requires gathers { return fusion_.next(); }

 private:
  typename Schedule::state schedule_;
  typename decltype(gathering())::type fusion_;
};

}  // namespace tutti::coordination
