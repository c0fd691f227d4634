#pragma once

#include <coroutine>

#include "tutti/core/failure.hpp"
#include "tutti/core/tensor_state.hpp"

namespace tutti {

/// The operation behind `co_await engine.arrival(id)`: resumes when the result of the tensor's last
/// `ready` has arrived. Throws the exception that ended this rank's part, if that happens first.
template <class Transport>
class arrival_operation : arrival_waiter {
  using state_type = tensor_state<typename Transport::queue_type::event>;

 public:
  arrival_operation(const failure<Transport>& of_this_rank, state_type& state)
      : failure_(&of_this_rank), state_(&state) {}
  arrival_operation(const arrival_operation&) = delete;
  arrival_operation& operator=(const arrival_operation&) = delete;
  /// A coroutine that is destroyed while it waits is not resumed.
  ~arrival_operation() {
    if (this->coroutine) {
      state_->waiting.take([this](const arrival_waiter& each) { return &each == this; });
    }
  }

  bool await_ready() const { return state_->is_current() || failure_->happened(); }
  void await_suspend(std::coroutine_handle<> waiter) {
    this->coroutine = waiter;
    state_->waiting.push(*this);
  }
  void await_resume() const { failure_->rethrow(); }

 private:
  const failure<Transport>* failure_;
  state_type* state_;
};

}  // namespace tutti
