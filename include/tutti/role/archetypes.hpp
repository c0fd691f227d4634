#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/base/queue.hpp"
#include "tutti/base/tag.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/transport.hpp"

/// The least that a policy finds of what it is written over: concepts ask for a policy's verbs over
/// these, and what compiles here compiles over every transport and queue. They do nothing.
namespace tutti::archetype {

/// A device queue with the loops that kernels may use.
class queue : public host_loops<queue> {
 public:
  struct event {};
  event record() { return {}; }
  void wait(event) {}
  void synchronize() {}

  template <class F>
  void run(F f) {
    f();
  }
};
static_assert(host_queue<queue> && device_queue<queue>);

class operation {
 public:
  operation() = default;
  operation(const operation&) = delete;
  operation& operator=(const operation&) = delete;

  bool await_ready() const { return true; }
  void await_suspend(std::coroutine_handle<>) {}
  void await_resume() {}
};

class loan {
 public:
  loan() = default;
  loan(loan&&) = default;
  loan& operator=(loan&&) = delete;

  std::span<const std::byte> bytes() const { return {}; }
  int peer() const { return 0; }
  tag where() const { return {}; }
};

class loan_operation : public operation {
 public:
  loan await_resume() { return {}; }
};

struct transport {};

/// One that only sends and receives: no all-reduce of its own, no rendezvous.
class endpoint {
 public:
  using transport_type = archetype::transport;
  using queue_type = archetype::queue;

  explicit endpoint(archetype::queue& queue) : queue_(&queue) {}

  int rank() const { return 0; }
  int size() const { return 1; }
  int host_of(int) const { return 0; }
  archetype::queue& queue() const { return *queue_; }
  seconds now() const { return 0; }
  tag where() const { return {}; }
  endpoint lane(std::uint32_t) const { return *this; }
  endpoint on(channel) const { return *this; }
  group_endpoint<endpoint> group(std::span<const int> ranks) const { return {*this, ranks}; }
  void start(task&) const {}

  operation send(int, std::span<const std::byte>) const { return {}; }
  operation receive(int, std::span<std::byte>) const { return {}; }
  template <class Fold>
  operation receive_fold(int, std::span<std::byte>, Fold) const {
    return {};
  }
  loan_operation receive_loan(int, std::size_t) const { return {}; }
  operation exchange(int, std::span<const std::byte>, int, std::span<std::byte>) const {
    return {};
  }
  template <class Fold>
  operation exchange_fold(int, std::span<const std::byte>, int, std::span<std::byte>, Fold) const {
    return {};
  }

 private:
  archetype::queue* queue_;
};
static_assert(message_endpoint<endpoint> && message_endpoint<group_endpoint<endpoint>>);

/// How two runs of elements combine.
struct fold {
  template <class Queue>
  void operator()(Queue&, std::byte*, const std::byte*, std::size_t) const {}
};

}  // namespace tutti::archetype
