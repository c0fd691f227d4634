#pragma once

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <vector>

#include "tutti/base/loops.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/plan.hpp"

namespace tutti {

/// Gradient memory that is the engine's: a bucket has some from when the model asks for the first
/// of its gradients until all its chunks have given it back, and then the next bucket that is asked
/// for has it. Any thread may ask while the loop gives back. Cost: as many buffers as buckets were
/// held at once so far, none longer than the longest bucket; within a limit, if there is one, for
/// who asks when `has_room`.
template <class Queue>
class lent_gradients {
  using queue_event = typename Queue::event;

 public:
  /// `most` bytes, or as many as it takes where that is 0.
  [[gnu::cold]] lent_gradients(const plan& made, std::size_t most)
      : plan_(&made),
        most_(most),
        held_(made.buckets.size()),
        written_(made.buckets.size()),
        returned_(made.buckets.size()) {}
  lent_gradients(const lent_gradients&) = delete;
  lent_gradients& operator=(const lent_gradients&) = delete;

  /// The bucket can be lent memory within the limit; or nothing that would make room is on its way,
  /// so that whoever waited would wait for gradients that he has to write himself. Threads that ask
  /// at once for several buckets may each find the room that is there for one.
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

  /// One of the bucket's gradients is final.
  void written(std::size_t number) {
    const std::scoped_lock lock(mutex_);
    if (++written_[number] == plan_->buckets[number].tensors) {
      written_[number] = 0;
      leaving_ += plan_->buckets[number].elements != 0 ? 1 : 0;
    }
  }

  /// Where the bucket's gradients are to be written, and what that has to wait for.
  struct room {
    float* data{};
    queue_event after{};
  };
  /// Bucket `number` holds memory from now on, unless it does already. `data` is set to it.
  room lend(Queue& queue, std::size_t number, float*& data) {
    const std::scoped_lock lock(mutex_);
    if (held_[number] == nobody && plan_->buckets[number].elements != 0) {
      held_[number] = choose(queue, plan_->buckets[number].elements);
      buffers_[held_[number]].is_free = false;
      data = buffers_[held_[number]].floats.data();
    }
    return held_[number] == nobody ? room() : room{data, buffers_[held_[number]].after};
  }

  /// One of the bucket's chunks needs it no more; `data` is forgotten with the last.
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

  /// Of all buffers that there are: without a limit, of as many as were ever held at once.
  std::size_t bytes() const {
    const std::scoped_lock lock(mutex_);
    return sizeof(float) * length();
  }

 private:
  static constexpr std::size_t nobody = 0;  // buffer 0 is nobody's

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

  /// Of all buffers, in elements.
  std::size_t length() const {
    std::size_t sum = 0;
    for (const buffer& each : buffers_) {
      sum += each.floats.size();
    }
    return sum;
  }
  /// The shortest free one that is long enough.
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
  /// The longest free one that nothing enqueued uses any more.
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

  /// One that is long enough; else the longest, made longer, and the other free ones given up if
  /// the limit asks for that; else a new one.
  std::size_t choose(Queue& queue, std::size_t elements) {
    if (const std::size_t fits = fitting(elements); fits != nobody) {
      return fits;
    }
    std::size_t chosen = longest_free();
    if (chosen == nobody) {
      buffers_.emplace_back();
      chosen = buffers_.size() - 1;
      buffers_[chosen].is_free = true;  // also where no memory can be had for it
    }
    buffers_[chosen].floats = {};  // before the longer one is there
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
  std::size_t leaving_ = 0;               ///< buckets that are written and not given back
  std::vector<std::size_t> held_;         ///< buffer, of each bucket
  std::vector<std::size_t> written_;      ///< tensors, of each bucket
  std::vector<std::ptrdiff_t> returned_;  ///< chunks, of each bucket
};

}  // namespace tutti
