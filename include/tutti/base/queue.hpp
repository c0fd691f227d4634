#pragma once

#include <concepts>
#include <cstddef>
#include <cstring>
#include <span>

#include "tutti/base/sum_in_lanes.hpp"

namespace tutti {

namespace cuda {
class stream;  // defined in base/cuda/stream.hpp; kernels need only its name, not CUDA
}

/// The element loops of all host queues. `Queue::run` decides when a loop executes. A functor is
/// copied into the queue: capture spans and values, never references.
template <class Queue>
class host_loops {
 public:
  /// Calls `f(i)` for every i in [0, n), in any order.
  template <class F>
  void for_each(std::size_t n, F f) {
    self().run([n, f] {
      for (std::size_t i = 0; i < n; ++i) {
        f(i);
      }
    });
  }

  /// Sets `*result` to the sum of `f(x)` over `input`, added in double in the order of
  /// sum_in_lanes, so that every run and every host queue gives the same bits.
  template <class T, class F>
  void transform_reduce(std::span<const float> input, T* result, F f) {
    self().run([input, result, f] {
      const auto term = [&input, &f](std::size_t i) { return f(input[i]); };
      *result = static_cast<T>(sum_in_lanes(input.size(), term));
    });
  }

  /// Sets every byte to 0. If `bytes` is 0, the pointer may be null.
  void clear(void* at, std::size_t bytes) {
    self().run([at, bytes] {
      if (bytes != 0) {
        std::memset(at, 0, bytes);
      }
    });
  }

  /// Copies between ranges that must not overlap. If `bytes` is 0, the pointers may be null.
  void copy(void* to, const void* from, std::size_t bytes) {
    self().run([to, from, bytes] {
      if (bytes != 0) {
        std::memcpy(to, from, bytes);
      }
    });
  }

 private:
  Queue& self() { return static_cast<Queue&>(*this); }
};

namespace detail {
struct no_work {  // nvcc cannot judge a lambda in a concept
  void operator()() const {}
};
}  // namespace detail

/// A queue whose work is host code. The CPU version of a kernel requires one; the CUDA version
/// requires a cuda::stream.
template <class Queue>
concept host_queue = requires(Queue& queue) {
  { queue.run(detail::no_work{}) } -> std::same_as<void>;
};

/// A queue whose work executes in order. `record` returns an event behind the work enqueued so far.
/// `wait(event)` holds back all work enqueued later until that event, of this queue or another, has
/// passed. Only `synchronize` blocks the host, and it throws what the work has refused meanwhile.
template <class Queue>
concept device_queue = requires(Queue& queue, typename Queue::event event, std::byte* bytes) {
  { queue.record() } -> std::same_as<typename Queue::event>;
  queue.wait(event);
  queue.synchronize();
  queue.copy(bytes, bytes, std::size_t{});
  queue.clear(bytes, std::size_t{});
};

/// A queue that executes work immediately, on the calling thread.
class inline_queue : public host_loops<inline_queue> {
 public:
  /// A point in a queue's order of work. In this queue it has always passed.
  struct event {};
  event record() { return {}; }
  void wait(event) {}
  static bool passed(event) { return true; }
  void synchronize() {}

  template <class F>
  void run(F f) {
    f();
  }
};
static_assert(host_queue<inline_queue> && device_queue<inline_queue>);

/// Makes a queue's device the calling thread's current one. Does nothing if the queue has none.
template <class Queue>
void make_device_current(const Queue& queue) {
  if constexpr (requires { queue.make_device_current(); }) {
    queue.make_device_current();
  }
}

/// Reports a kernel's cost, as the bytes that it reads and writes. A queue that models a device
/// lets the corresponding time pass; any other queue ignores it.
template <class Queue>
void charge(Queue& queue, std::size_t bytes) {
  if constexpr (requires { queue.charge(bytes); }) {
    queue.charge(bytes);
  }
}

}  // namespace tutti
