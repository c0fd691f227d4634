#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "tutti/base/cost.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/units.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/fusion.hpp"
#include "tutti/role/transport.hpp"

namespace tutti {

/// Who drives communication.
enum class progress {
  /// by_thread where this host has two cores a rank, of which the rank may use both, or where
  /// others ask the rank while it trains; else by_caller.
  automatic,
  /// The threads that call `ready` and `wait`. While none of them does, as in a program's own wait
  /// for a CUDA stream, nobody notices that another rank is lost. Nor does any other engine of the
  /// process go on: ranks that wait for two engines in different orders wait for ever.
  by_caller,
  by_thread,  ///< a progress thread, which the engines of one process share
};
constexpr std::array<std::string_view, 3> names(progress) {
  return {"automatic", "caller", "thread"};
}

/// Options of how an engine runs, independent of its strategy.
struct run_options {
  /// Time without any progress after which a waiting rank asks the others what they are doing. A
  /// rank that does not answer within four more seconds is named in an error. So is, after a second
  /// deadline, a rank that owes something and has handed in nothing since. The deadline must
  /// therefore be longer than a rank takes from one gradient to the next. Where no thread answers
  /// for a rank that computes, it must be longer than from one message of that rank to its next,
  /// which with large buckets is a whole step. A rank that only serves, or that closes, waits
  /// without a deadline. A rank that fails waits for at most this long, or 5 seconds if that is
  /// longer, until its memory is no longer in use.
  seconds deadline{60};
  tutti::progress progress{};
  /// Backward passes of a step. The model adds up their gradients before they are sent. Passes of
  /// a step that is never completed are not sent: an engine that ends drops them without a word.
  unsigned accumulation{1};

  /// Lists the options that all ranks must set alike. `deadline` and `progress` may differ.
  template <class Self, class Visitor>
  static void describe(Self& self, Visitor&& visit) {
    visit("accumulation", self.accumulation,
          "backward passes whose gradients are added up before they are sent");
  }
};

/// Throws usage_error if a step would have no pass, or the deadline is not positive.
inline void expect_run_options(const run_options& run) {
  if (run.accumulation == 0) {
    throw usage_error(
        "run.accumulation = 0 leaves a step without gradients. Fix: 1, or the number of passes "
        "that a step adds up");
  }
  if (!(run.deadline > 0)) {
    throw usage_error(
        "run.deadline must be above 0. Fix: more seconds than a rank takes from one gradient to "
        "the next, such as 60");
  }
}

/// Throws usage_error for such options, and if what is ready might wait for a fusion's cycle for
/// longer than `deadline`, which ends no wait in virtual time.
template <class Fusion, class Options, class Transport>
void expect_run_options(const Options& set, [[maybe_unused]] const plan& made,
                        [[maybe_unused]] seconds deadline,
                        [[maybe_unused]] const Transport& world) {
  expect_run_options(set.run);
  if constexpr (facts::has_cycle<Fusion>) {
    const seconds cycle = typename Fusion::state(made, set.fusion).cycle();
    if (cycle > deadline && in_real_time(world)) {
      throw usage_error(sentence(
          {"the fusion's cycle is ", cycle, " seconds and run.deadline ", deadline,
           ", so ranks that wait for a cycle would be taken for stuck. Fix: a shorter cycle, such "
           "as 0.001, or a longer deadline"}));
    }
  }
}

/// All options of an engine. Their defaults are those of the named strategy.
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

/// The factor by which residuals of gradients grow when the passes of a step change from those of
/// `was` to those of `wanted`: passes are added up, and the sum is divided by their number.
template <class Architecture>
constexpr float change_of_passes(const run_options& was, const run_options& wanted) {
  return facts::carries_of<Architecture> == carries::gradient &&
                 !facts::exchanges_momenta<Architecture>
             ? static_cast<float>(wanted.accumulation) / static_cast<float>(was.accumulation)
             : 1.0f;
}

/// Throws usage_error if a strategy that has made `steps` steps under the options `was` cannot
/// continue under `wanted`, because of what it did or remembers.
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
