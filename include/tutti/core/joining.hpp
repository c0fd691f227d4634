#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tutti/base/task.hpp"
#include "tutti/base/tensor.hpp"

namespace tutti {

/// A rank's part in `engine.join()`: once it has joined it hands in zeros for every tensor, again
/// and again as soon as the last have arrived, until all ranks have joined.
/// `Owner::absent_to_the_end(id)` hands in zeros for all missing passes, `Owner::arrival(id)` waits
/// for their result, and `Owner::say_joined()` tells the coordination. Before that, tensors that
/// are behind have zeros handed in: `Owner::steps_begun()` counts the steps of which some tensor
/// has had a pass, and `Owner::steps_ended(id)` those of which the tensor's result has come.
template <class Owner>
class joining {
 public:
  joining(Owner& owner, run_queue& queue, std::size_t tensors)
      : owner_(&owner), queue_(&queue), zeros_(tensors) {}
  joining(const joining&) = delete;
  joining& operator=(const joining&) = delete;

  /// Joins, and ends when all ranks have joined.
  task join() {
    for (std::size_t i = 0; i < zeros_.size(); ++i) {
      co_await owner_->arrival(tensor_id(i));
    }
    joined_ = true;  // memory for zeros is lent without a wait
    const std::uint64_t begun = owner_->steps_begun();
    for (std::size_t i = 0; i < zeros_.size(); ++i) {
      if (owner_->steps_ended(tensor_id(i)) < begun) {
        owner_->absent_to_the_end(tensor_id(i));
      }
    }
    for (std::size_t i = 0; i < zeros_.size(); ++i) {
      co_await owner_->arrival(tensor_id(i));
    }
    owner_->say_joined();
    for (std::size_t i = 0; i < zeros_.size(); ++i) {
      zeros_[i] = hand_in_zeros(tensor_id(i));
      zeros_[i].start(*queue_);
    }
    for (std::size_t i = 0; i < zeros_.size(); ++i) {
      const task& each = zeros_[i];
      co_await each;
    }
  }

  void all_have_joined() { joined_ = false; }
  bool joined() const { return joined_; }
  bool at_rest() const {
    for (const task& each : zeros_) {
      if (!each.done()) {
        return false;
      }
    }
    return true;
  }

 private:
  task hand_in_zeros(tensor_id id) {
    while (joined_) {
      owner_->absent_to_the_end(id);
      co_await owner_->arrival(id);
    }
  }

  Owner* owner_;
  run_queue* queue_;
  std::vector<task> zeros_;  ///< one for each tensor
  bool joined_ = false;
};

}  // namespace tutti
