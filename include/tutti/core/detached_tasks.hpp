#pragma once

#include <cstddef>
#include <exception>
#include <utility>
#include <vector>

#include "tutti/base/task.hpp"

namespace tutti {

/// Tasks that nobody awaits. `failed(context, why)` receives the exception of each that fails.
class detached_tasks {
 public:
  detached_tasks(run_queue& queue, void (*failed)(void*, std::exception_ptr), void* context)
      : queue_(&queue), failed_(failed), context_(context) {}
  detached_tasks(const detached_tasks&) = delete;
  detached_tasks& operator=(const detached_tasks&) = delete;

  void start(task work) {
    std::size_t place = 0;
    if (free_.empty()) {
      place = all_.size();
      all_.emplace_back();
    } else {
      place = free_.back();
      free_.pop_back();
    }
    all_[place] = watched(std::move(work), place);
    all_[place].start(*queue_);
  }
  /// Returns whether all have ended.
  bool at_rest() const {
    for (const task& each : all_) {
      if (!each.done()) {
        return false;
      }
    }
    return true;
  }
  /// Ends when all tasks that run now have ended.
  [[gnu::cold]] task finish() {
    for (std::size_t i = 0; i < all_.size(); ++i) {
      const task& each = all_[i];
      co_await each;
    }
  }

 private:
  task watched(task work, std::size_t place) {
    try {
      co_await work;
    } catch (...) {
      failed_(context_, std::current_exception());
    }
    free_.push_back(place);
  }

  run_queue* queue_;
  void (*failed_)(void*, std::exception_ptr);
  void* context_;
  std::vector<task> all_{};
  std::vector<std::size_t> free_{};
};

}  // namespace tutti
