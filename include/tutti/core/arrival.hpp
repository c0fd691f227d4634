#pragma once

#include <coroutine>

#include "tutti/base/tensor.hpp"
#include "tutti/core/tensor_state.hpp"

namespace tutti {

/// The operation behind `co_await engine.arrival(id)`: resumes when the result of the tensor's last
/// `ready` has arrived. Throws the exception that ended this rank's part, if that happens first.
template <class Core>
class arrival_operation : arrival_waiter {
 public:
  arrival_operation(Core& of, tensor_id id) : core_(&of), state_(&of.at(id)) {}
  arrival_operation(const arrival_operation&) = delete;
  arrival_operation& operator=(const arrival_operation&) = delete;
  /// A coroutine that is destroyed while it waits is not resumed.
  ~arrival_operation() {
    if (this->coroutine) {
      state_->waiting.take([this](const arrival_waiter& each) { return &each == this; });
    }
  }

  bool await_ready() const { return state_->is_current() || core_->failed(); }
  void await_suspend(std::coroutine_handle<> waiter) {
    this->coroutine = waiter;
    state_->waiting.push(*this);
  }
  void await_resume() const { core_->failure_.rethrow(); }

 private:
  Core* core_;
  tensor_state<typename Core::queue_event>* state_;
};

}  // namespace tutti
