#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <type_traits>
#include <utility>

#include "tutti/base/tag.hpp"
#include "tutti/base/task.hpp"
#include "tutti/core/step_sums.hpp"
#include "tutti/role/monitor.hpp"
#include "tutti/role/transport.hpp"

namespace tutti {

/// A monitor with the clock that it is told. Costs nothing if the monitor does not observe.
template <class Monitor, class Transport>
class observer {
  static constexpr bool adds_up = facts::has_sums<Monitor>;

 public:
  observer(Transport& world, Monitor its_monitor)
      : world_(&world), monitor(std::move(its_monitor)), sums_(world, monitor, mutex_) {}

  void record(event what, std::uint32_t which) {
    if constexpr (Monitor::observes) {
      const std::scoped_lock lock(mutex_);  // the trainer's own threads record waits
      const seconds when = world_->now();
      monitor.record(what, which, when);
      if constexpr (adds_up) {
        if (what == event::arrived) {
          sums_.arrived(which);
        }
      }
      note_time(when);
    }
  }
  /// Shows the monitor the mean gradient of a tensor, before it is divided by a loss scale or
  /// clipped.
  void mean([[maybe_unused]] std::uint32_t which,
            [[maybe_unused]] std::span<const float> gradient) {
    if constexpr (facts::sees_means<Monitor>) {
      const std::scoped_lock lock(mutex_);
      const seconds when = world_->now();
      monitor.mean(which, gradient);
      note_time(when);
    }
  }
  /// Tells the monitor that chunks have other numbers from now on.
  [[gnu::cold]] void replanned() {
    if constexpr (facts::hears_of_plans<Monitor>) {
      const std::scoped_lock lock(mutex_);
      monitor.replanned();
    }
  }
  /// Tells the monitor by what the gradients are multiplied whose means come next.
  void scaled([[maybe_unused]] float scale) {
    if constexpr (facts::hears_of_scales<Monitor>) {
      const std::scoped_lock lock(mutex_);
      monitor.scaled(scale);
    }
  }
  /// Seconds that the monitor has spent on reading gradients and parameters on this rank.
  seconds spent() const {
    const std::scoped_lock lock(mutex_);
    return spent_;
  }

  // ---- the sums that the monitor forms over the workers, if it does

  void begin_sums([[maybe_unused]] tag where, [[maybe_unused]] int workers,
                  [[maybe_unused]] std::size_t tensors,
                  [[maybe_unused]] void (*failed)(void*, std::exception_ptr),
                  [[maybe_unused]] void* context) {
    if constexpr (adds_up) {
      sums_.begin(where, workers, tensors, failed, context);
    }
  }
  bool sums_are_there() const {
    if constexpr (adds_up) {
      return sums_.are_there();
    } else {
      return true;
    }
  }
  traffic counted() const {
    if constexpr (adds_up) {
      return sums_.counted();
    } else {
      return {};
    }
  }
  bool at_rest() const {
    if constexpr (adds_up) {
      return sums_.at_rest();
    } else {
      return true;
    }
  }
  void end_sums() {
    if constexpr (adds_up) {
      sums_.end();
    }
  }
  task finish() {
    if constexpr (adds_up) {
      return sums_.finish();
    } else {
      return {};
    }
  }
  void stop() {
    if constexpr (adds_up) {
      sums_.stop();
    }
  }

 private:
  /// Measures only monitors that read memory: measuring one that counts would cost more than it
  /// does.
  void note_time([[maybe_unused]] seconds since) {
    if constexpr (facts::reads_memory<Monitor>) {
      spent_ += world_->now() - since;
    }
  }

  Transport* world_;
  mutable std::mutex mutex_{};
  seconds spent_ = 0;

 public:
  Monitor monitor;

 private:
  [[no_unique_address]] std::conditional_t<adds_up, step_sums<Monitor, Transport>, no_sums> sums_;
};

}  // namespace tutti
