#pragma once

#include <atomic>
#include <coroutine>
#include <cstdint>

#include "tutti/base/fifo.hpp"
#include "tutti/core/model_memory.hpp"

namespace tutti {

/// A coroutine that waits for a tensor to arrive.
struct arrival_waiter {
  arrival_waiter* next{};
  std::coroutine_handle<> coroutine{};
};

/// A tensor's place in the step. `readied` counts gradients handed in, and is written by the thread
/// that does so. `arrived` counts results received, and is written by the loop's owner. Each has
/// one writer at a time; other threads may read.
template <class Event>
struct tensor_state {
  std::atomic<std::uint64_t> readied{0};
  std::atomic<std::uint64_t> arrived{0};
  std::atomic<unsigned> accumulated{0};  ///< passes of this step; written by the trainer
  unsigned pieces = 0;                   ///< chunks that hold some of it
  unsigned pieces_left = 0;
  gradient_memory moved{};  ///< where the gradient lies now, if `ready` was told
  Event written{};
  Event current{};
  fifo<arrival_waiter> waiting{};

  bool is_current() const {
    return arrived.load(std::memory_order_acquire) == readied.load(std::memory_order_relaxed);
  }
};

}  // namespace tutti
