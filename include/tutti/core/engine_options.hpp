#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "tutti/base/cost.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/units.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/role/architecture.hpp"

namespace tutti {

/// Who moves communication forward.
enum class progress {
  automatic,  ///< by_thread where this host has two cores a rank, and the rank may use both
  by_caller,  ///< inside `ready` and `wait`
  by_thread,  ///< a thread beside; the engines of one process share it
};

/// How an engine runs, whatever its strategy.
struct run_options {
  /// A wait in which nothing moves for so long asks the others what they are doing. It ends with
  /// the name of whoever does not answer in four more seconds, or after as long again of whoever
  /// owes something and has handed in nothing meanwhile. So it must be longer than a rank takes
  /// from one gradient to the next; where no thread answers for a rank that computes, longer than
  /// from what it sends to what it sends next, which of large buckets is a step. A rank that only
  /// serves, or closes, waits without one; one that fails waits so long for its memory.
  seconds deadline{60};
  tutti::progress progress{};
  /// Backward passes whose gradients the model adds up before they are sent.
  unsigned accumulation{1};

  /// What all ranks must set alike; the deadline and who makes progress are each rank's own.
  template <class Self, class Visitor>
  static void describe(Self& self, Visitor&& visit) {
    visit("accumulation", self.accumulation, "backward passes added up before they are sent");
  }
};

/// Throws usage_error where a step would have no pass, or a wait no length.
inline void expect_run_options(const run_options& run) {
  if (run.accumulation == 0) {
    throw usage_error(
        "run.accumulation of 0 passes leaves a step without gradients. Fix: 1, or as many as are "
        "added up");
  }
  if (!(run.deadline > 0)) {
    throw usage_error(
        "run.deadline is over before anybody can answer. Fix: more seconds than a rank takes from "
        "one gradient to the next, as 60");
  }
}

/// Everything that may be set about an engine; the defaults are the named strategy's.
template <class S>
struct engine_options {
 private:
  using strategy = strategy_of<S>;
  static constexpr auto own = default_options<S>();

 public:
  options_of<typename strategy::fusion> fusion = own.fusion;
  options_of<typename strategy::partition> partition = own.partition;
  options_of<typename strategy::schedule> schedule = own.schedule;
  options_of<typename strategy::coordination> coordination = own.coordination;
  options_of<typename strategy::compression> compression = own.compression;
  options_of<typename strategy::architecture> architecture = own.architecture;
  run_options run{};
  tutti::profile profile{};
};

/// What ranks have not sent of their gradients becomes so many times as much where steps have other
/// passes: they are added up, and the sum is divided by their number.
template <class Architecture>
constexpr float change_of_passes(const run_options& was, const run_options& wanted) {
  return facts::carries_of<Architecture> == carries::gradient &&
                 !facts::exchanges_momenta<Architecture>
             ? static_cast<float>(wanted.accumulation) / static_cast<float>(was.accumulation)
             : 1.0f;
}

/// Throws usage_error where what a strategy has done in `steps` steps under the options `was`, or
/// remembers of them, it could not go on with under those that are wanted.
template <class Architecture, class Compression, class Options>
[[gnu::cold]] void expect_goes_on([[maybe_unused]] const Options& was,
                                  [[maybe_unused]] const Options& wanted,
                                  [[maybe_unused]] std::uint64_t steps) {
  if constexpr (requires { &Architecture::template expect_replan<Compression>; }) {
    Architecture::template expect_replan<Compression>(was.architecture, wanted.architecture, steps);
  }
  if constexpr (requires { &Compression::expect_replan; }) {
    Compression::expect_replan(was.compression, wanted.compression, steps);
  }
}

}  // namespace tutti
