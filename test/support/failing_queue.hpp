#pragma once

#include <atomic>
#include <cstddef>
#include <stdexcept>

#include "tutti/base/queue.hpp"

namespace tutti::test {

/// Works as `Queue` does until it is told to fail. From then on it refuses every call, as a device
/// does after an illegal access.
template <class Queue>
class failing : public Queue {
 public:
  using event = typename Queue::event;

  void fail() { failed_ = true; }

  event record() {
    expect_working();
    return Queue::record();
  }
  void wait(const event& until) {
    expect_working();
    Queue::wait(until);
  }
  void synchronize() {
    expect_working();
    Queue::synchronize();
  }
  template <class F>
  void run(F f) {
    expect_working();
    Queue::run(f);
  }
  void copy(void* to, const void* from, std::size_t bytes) {
    expect_working();
    Queue::copy(to, from, bytes);
  }
  void clear(void* at, std::size_t bytes) {
    expect_working();
    Queue::clear(at, bytes);
  }
  bool reaches(const void* memory) const requires requires { Queue::reaches(memory); }
  {
    expect_working();
    return Queue::reaches(memory);
  }

 private:
  void expect_working() const {
    if (failed_) {
      throw std::runtime_error("the device is lost");
    }
  }

  std::atomic<bool> failed_{false};
};
using failing_queue = failing<inline_queue>;
static_assert(host_queue<failing_queue> && device_queue<failing_queue>);

}  // namespace tutti::test
