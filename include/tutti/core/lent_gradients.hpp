#pragma once

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <vector>

#include "tutti/base/loops.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/plan.hpp"

namespace tutti {

/// Gradient memory that the engine lends to the model. A bucket gets a buffer when the model asks
/// for the first of its gradients, and keeps it until all its chunks have given it back; then the
/// next bucket may have it. Any thread may ask while the loop gives back. Cost: as many buffers as
/// there were buckets that held one at the same time, none longer than the longest bucket. Together
/// they stay within the limit, if there is one, for threads that ask only when `has_room`, except
/// where waiting would not make room.
template <class Queue>
class lent_gradients {
  using queue_event = typename Queue::event;

 public:
  /// `most` is the limit in bytes; 0 for none.
  [[gnu::cold]] lent_gradients(const plan& made, std::size_t most)
      : plan_(&made),
        most_(most),
        held_(made.buckets.size()),
        written_(made.buckets.size()),
        returned_(made.buckets.size()) {}
  lent_gradients(const lent_gradients&) = delete;
  lent_gradients& operator=(const lent_gradients&) = delete;

  /// Returns whether the bucket can be lent memory within the limit. Also returns true if no bucket
  /// is in flight that would make room, because a thread that waited would then wait for gradients
  /// that it has to write itself. Threads that ask at the same time for several buckets may all be
  /// promised the same room.
  bool has_room(std::size_t number) const {
    const std::scoped_lock lock(mutex_);
    const std::size_t elements = plan_->buckets[number].elements;
    if (most_ == 0 || held_[number] != nobody || elements == 0 || leaving_ == 0 ||
        fitting(elements) != nobody) {
      return true;
    }
    const std::size_t instead = longest_free();
    const std::size_t less = instead == nobody ? 0 : buffers_[instead].floats.size();
    return sizeof(float) * (length() - less + elements) <= most_;
  }

  /// Says that one of the bucket's gradients is final.
  void written(std::size_t number) {
    const std::scoped_lock lock(mutex_);
    if (++written_[number] == plan_->buckets[number].tensors) {
      written_[number] = 0;
      leaving_ += plan_->buckets[number].elements != 0 ? 1U : 0U;
    }
  }

  /// Where the bucket's gradients are to be written, and after which event.
  struct room {
    float* data{};
    queue_event after{};
  };
  /// Lends memory to bucket `number`, unless it holds some already. `data` is set to it.
  room lend(Queue& queue, std::size_t number, float*& data) {
    const std::scoped_lock lock(mutex_);
    if (held_[number] == nobody && plan_->buckets[number].elements != 0) {
      held_[number] = choose(queue, plan_->buckets[number].elements);
      buffers_[held_[number]].is_free = false;
      data = buffers_[held_[number]].floats.data();
    }
    return held_[number] == nobody ? room() : room{data, buffers_[held_[number]].after};
  }

  /// Says that one of the bucket's chunks does not need the memory any more. With the last one, the
  /// buffer becomes free and `data` null.
  void give_back(Queue& queue, std::size_t number, float*& data) {
    const std::scoped_lock lock(mutex_);
    const bucket& of = plan_->buckets[number];
    const auto* chunks = plan_->chunks.data() + of.first_chunk;
    const auto sent = std::count_if(chunks, chunks + of.chunks,
                                    [](const chunk& each) { return each.elements != 0; });
    if (++returned_[number] == sent) {
      returned_[number] = 0;
      --leaving_;
      buffer& mine = buffers_[held_[number]];
      mine.is_free = true;
      mine.after = queue.record();
      held_[number] = nobody;
      data = nullptr;
    }
  }

  /// Bytes of all buffers. Without a limit, there are as many as were ever held at once.
  std::size_t bytes() const {
    const std::scoped_lock lock(mutex_);
    return sizeof(float) * length();
  }

 private:
  static constexpr std::size_t nobody = 0;  // buffer 0 is never used, and means none

  struct buffer {
    memory_of<float, Queue> floats{};
    queue_event after{};
    bool is_free{};
  };

  static bool has_passed(const buffer& each) {
    if constexpr (requires { Queue::passed(each.after); }) {
      return Queue::passed(each.after);
    } else {
      return true;
    }
  }

  /// Length of all buffers together, in elements.
  std::size_t length() const {
    std::size_t sum = 0;
    for (const buffer& each : buffers_) {
      sum += each.floats.size();
    }
    return sum;
  }
  /// The shortest free buffer that is long enough.
  std::size_t fitting(std::size_t elements) const {
    std::size_t fits = nobody;
    for (std::size_t i = 1; i < buffers_.size(); ++i) {
      const std::size_t length = buffers_[i].floats.size();
      if (buffers_[i].is_free && length >= elements &&
          (fits == nobody || length < buffers_[fits].floats.size())) {
        fits = i;
      }
    }
    return fits;
  }
  /// The longest free buffer that nothing enqueued uses any more.
  std::size_t longest_free() const {
    std::size_t longest = nobody;
    for (std::size_t i = 1; i < buffers_.size(); ++i) {
      if (buffers_[i].is_free && has_passed(buffers_[i]) &&
          (longest == nobody || buffers_[i].floats.size() > buffers_[longest].floats.size())) {
        longest = i;
      }
    }
    return longest;
  }

  /// Returns a free buffer that is long enough. If there is none, makes the longest free one
  /// longer, or else adds one. Frees the memory of other free buffers if the limit demands it.
  std::size_t choose(Queue& queue, std::size_t elements) {
    if (const std::size_t fits = fitting(elements); fits != nobody) {
      return fits;
    }
    std::size_t chosen = longest_free();
    if (chosen == nobody) {
      buffers_.emplace_back();
      chosen = buffers_.size() - 1;
      buffers_[chosen].is_free = true;  // so that it stays usable if the allocation below fails
    }
    buffers_[chosen].floats = {};  // frees the shorter memory before the longer is allocated
    for (buffer& each : buffers_) {
      if (most_ != 0 && sizeof(float) * (length() + elements) > most_ && each.is_free &&
          has_passed(each)) {
        each.floats = {};
      }
    }
    buffers_[chosen].floats = allocate<float>(queue, elements);
    return chosen;
  }

  const plan* plan_;
  std::size_t most_;
  mutable std::mutex mutex_;
  std::vector<buffer> buffers_ = std::vector<buffer>(1);
  std::size_t leaving_ = 0;               ///< buckets that are written and not yet given back
  std::vector<std::size_t> held_;         ///< the buffer of each bucket
  std::vector<std::size_t> written_;      ///< final gradients of each bucket
  std::vector<std::ptrdiff_t> returned_;  ///< chunks of each bucket that have given it back
};

}  // namespace tutti
