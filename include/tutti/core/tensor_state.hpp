#pragma once

#include <atomic>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tutti/base/fifo.hpp"
#include "tutti/base/loops.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/task.hpp"
#include "tutti/core/model_memory.hpp"
#include "tutti/role/monitor.hpp"

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
  /// Resumes the coroutines that wait for the tensor.
  void wake(run_queue& next) {
    while (arrival_waiter* waiter = waiting.pop()) {
      next.push(std::exchange(waiter->coroutine, nullptr));
    }
  }
};

/// The states of a model's tensors, by position. Compiled once for all strategies.
template <class Event>
class tensor_states {
 public:
  explicit tensor_states(const plan& made) : plan_(&made), states_(made.backward.size()) {
    for (const chunk& piece : made.chunks) {
      for (const std::size_t position : made.tensors_of(piece)) {
        ++states_[position].pieces;
      }
    }
    for (auto& each : states_) {
      each.pieces_left = each.pieces;
    }
  }

  tensor_state<Event>& operator[](std::size_t position) { return states_[position]; }
  const tensor_state<Event>& operator[](std::size_t position) const { return states_[position]; }
  std::size_t size() const { return states_.size(); }

  /// Steps that have ended for the model's last tensor.
  std::uint64_t steps() const {
    return states_.empty() ? 0 : states_.front().arrived.load(std::memory_order_acquire);
  }
  bool all_are_current() const {
    return loops::all_of(states_, [](const auto& each) { return each.is_current(); });
  }
  /// The first tensor of `group` whose gradient of step `step` has not been handed in, or
  /// `no_tensor`.
  [[gnu::cold]] std::uint32_t lacking(const bucket& group, std::uint64_t step) const {
    for (std::size_t i = 0; i < group.tensors; ++i) {
      const std::size_t position = group.first_tensor + i;
      if (states_[position].readied.load() <= step) {
        return static_cast<std::uint32_t>(index(plan_->at(position)));
      }
    }
    return no_tensor;
  }

  /// Continues from step `steps`. Only where all are current.
  [[gnu::cold]] void resume(std::uint64_t steps) {
    for (auto& each : states_) {
      each.readied = steps;
      each.arrived = steps;
    }
  }
  /// Makes every tensor current without its last gradient, which will never travel.
  [[gnu::cold]] void give_up(run_queue& next) {
    for (auto& each : states_) {
      each.readied.store(each.arrived.load(std::memory_order_relaxed), std::memory_order_relaxed);
      each.wake(next);
    }
  }
  [[gnu::cold]] void wake(run_queue& next) {
    for (auto& each : states_) {
      each.wake(next);
    }
  }

 private:
  const plan* plan_;
  std::vector<tensor_state<Event>> states_;
};

}  // namespace tutti
