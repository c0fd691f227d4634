#pragma once

#include <chrono>
#include <thread>

#include "tutti/base/units.hpp"
#include "tutti/core/engine_options.hpp"

/// Checks that no rank waits for longer than a deadline, whether the caller or a thread drives the
/// engine.
namespace tutti::test {

inline void sleep_for(seconds duration) {
  std::this_thread::sleep_for(std::chrono::duration<double>(duration));
}

template <class Strategy>
engine_options<Strategy> impatient(seconds deadline, progress who) {
  engine_options<Strategy> options;
  options.run.deadline = deadline;
  options.run.progress = who;
  return options;
}

inline constexpr progress both[] = {progress::by_caller, progress::by_thread};

}  // namespace tutti::test
