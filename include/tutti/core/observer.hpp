#pragma once

#include <cstdint>
#include <mutex>
#include <utility>

#include "tutti/role/monitor.hpp"

namespace tutti {

/// A monitor and the clock it is told; nothing at all if it does not observe.
template <class Monitor, class Transport>
class observer {
 public:
  observer(Transport& world, Monitor its_monitor)
      : world_(&world), monitor(std::move(its_monitor)) {}

  void record(event what, std::uint32_t which) {
    if constexpr (Monitor::observes) {
      const std::scoped_lock lock(mutex_);  // waits are seen by the trainer's own threads
      monitor.record(what, which, world_->now());
    }
  }

 private:
  Transport* world_;
  std::mutex mutex_{};

 public:
  Monitor monitor;
};

}  // namespace tutti
