#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <vector>

#include "tutti/base/memory.hpp"

namespace tutti::transport::detail {

/// Memory of a queue's own for messages that cannot be received where they belong, by size: powers
/// of two from 64 bytes. It may be given back while the queue still works on it: whoever takes it
/// next enqueues behind that. Freed at the end; after the first step nothing is allocated.
template <class Queue>
class queue_staging {
 public:
  explicit queue_staging(Queue& queue) : queue_(&queue) {}
  queue_staging(const queue_staging&) = delete;
  queue_staging& operator=(const queue_staging&) = delete;

  std::byte* take(std::size_t bytes) {
    const std::size_t size_class = class_of(bytes);
    auto& free = free_[size_class];
    if (free.empty()) {
      all_.push_back(allocate<std::byte>(*queue_, std::size_t{64} << size_class));
      free.reserve(all_.size());
      return all_.back().data();
    }
    std::byte* taken = free.back();
    free.pop_back();
    return taken;
  }

  /// `bytes` as it was asked for.
  void give(std::byte* taken, std::size_t bytes) { free_[class_of(bytes)].push_back(taken); }

 private:
  static std::size_t class_of(std::size_t bytes) {
    return bytes <= 64 ? 0 : static_cast<std::size_t>(std::bit_width((bytes - 1) >> 6));
  }

  Queue* queue_;
  std::array<std::vector<std::byte*>, 64> free_{};
  std::vector<memory_of<std::byte, Queue>> all_{};
};

}  // namespace tutti::transport::detail
