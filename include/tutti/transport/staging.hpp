#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

#include "tutti/base/memory.hpp"

namespace tutti::transport::detail {

/// Which memory staging uses: the queue's own, or memory that the host reaches as well.
enum class place { own, shared };

/// A pool of buffers for messages that cannot be received, or sent, where they belong. Sizes are
/// powers of two from 64 bytes. A buffer that was given back is reused once the queue has passed
/// its event `until`, the last one first, since it is warm in cache. Buffers are freed with the
/// pool; after the first steps nothing is allocated.
template <class Queue>
class staging {
 public:
  using queue_event = typename Queue::event;

  explicit staging(Queue& queue, place where = place::own) : queue_(&queue), where_(where) {}
  staging(const staging&) = delete;
  staging& operator=(const staging&) = delete;
  /// The queue's own memory waits for pending work before it is freed; host memory does not.
  ~staging() {
    if (!shared_.empty()) {
      try {
        queue_->synchronize();
      } catch (...) {
      }  // a destructor has no one to tell
    }
  }

  std::byte* take(std::size_t bytes) {
    const std::size_t size_class = class_of(bytes);
    auto& free = free_[size_class];
    const auto found = std::find_if(free.rbegin(), free.rend(),
                                    [](const block& each) { return Queue::passed(each.until); });
    if (found == free.rend()) {
      std::byte* fresh = made(std::size_t{64} << size_class);
      free.reserve(own_.size() + shared_.size());
      return fresh;
    }
    std::byte* taken = found->bytes;
    free.erase(std::next(found).base());
    return taken;
  }

  /// Gives a buffer back; `bytes` is the size that was asked for. Without an event the buffer may
  /// be reused at once, so whoever takes it next must enqueue behind whatever still works on it.
  void give(std::byte* taken, std::size_t bytes, queue_event until = {}) {
    free_[class_of(bytes)].push_back({taken, std::move(until)});
  }

 private:
  struct block {
    std::byte* bytes;
    queue_event until;
  };

  static std::size_t class_of(std::size_t bytes) {
    return bytes <= 64 ? 0 : static_cast<std::size_t>(std::bit_width((bytes - 1) >> 6));
  }

  std::byte* made(std::size_t bytes) {
    if (where_ == place::own) {
      return own_.emplace_back(allocate<std::byte>(*queue_, bytes)).data();
    }
    return shared_.emplace_back(allocate_shared<std::byte>(*queue_, bytes)).data();
  }

  Queue* queue_;
  place where_;
  std::array<std::vector<block>, 64> free_{};
  std::vector<memory_of<std::byte, Queue>> own_{};
  std::vector<shared_memory_of<std::byte, Queue>> shared_{};
};

}  // namespace tutti::transport::detail
