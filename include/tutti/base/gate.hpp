#pragma once

#include <coroutine>
#include <utility>

#include "tutti/base/task.hpp"

namespace tutti {

/// A gate at which one coroutine waits until `open` is called. If it is opened before a coroutine
/// waits, the next one passes without waiting.
class gate {
 public:
  explicit gate(run_queue& queue) : queue_(&queue) {}
  gate(const gate&) = delete;
  gate& operator=(const gate&) = delete;

  void open() {
    if (waiter_) {
      queue_->push(std::exchange(waiter_, nullptr));
    } else {
      opened_ = true;
    }
  }

  /// Likewise, but a coroutine that waits goes on before this returns, and not in its turn.
  void open_at_once() {
    if (waiter_) {
      std::exchange(waiter_, nullptr).resume();
    } else {
      opened_ = true;
    }
  }

  bool await_ready() noexcept { return std::exchange(opened_, false); }
  void await_suspend(std::coroutine_handle<> waiter) {
    waiter_ = waiter;
    if (await_ready()) {  // launch::hand_back suspends without asking that first
      open();
    }
  }
  void await_resume() const noexcept {}

 private:
  run_queue* queue_;
  std::coroutine_handle<> waiter_ = nullptr;
  bool opened_ = false;
};

}  // namespace tutti
