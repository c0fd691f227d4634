#pragma once

#include <cstdint>

#include "tutti/base/cost.hpp"
#include "tutti/base/units.hpp"
#include "tutti/core/compose.hpp"

namespace tutti {

/// Who moves communication forward.
enum class progress {
  automatic,  ///< by_caller where ranks are crowded, by_thread otherwise
  by_caller,  ///< inside `ready` and `wait`
  by_thread,  ///< a thread of the engine's own
};

/// Who decides what starts next where an order is needed.
enum class decisions {
  led,            ///< rank 0, wherever a rule says that ranks might disagree
  by_every_rank,  ///< each for itself: deadlocks where an order is needed; for showing that it does
};

/// How an engine runs, whatever its strategy.
struct run_options {
  /// A wait that brings nothing for so long ends with the name of whoever holds it up.
  seconds deadline{60};
  tutti::progress progress{};
  tutti::decisions decisions{};
  /// Backward passes whose gradients the model adds up before they are sent.
  unsigned accumulation{1};
};

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
  options_of<typename strategy::compression> compression = own.compression;
  options_of<typename strategy::architecture> architecture = own.architecture;
  run_options run{};
  tutti::profile profile{};
};

}  // namespace tutti
