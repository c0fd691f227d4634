#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace tutti {

/// A lock-free queue of small numbers, from any thread to the one that empties it. It is never
/// full, because each of `senders` numbers is in it at most once. Cost of a post: two atomic
/// operations, no lock.
class post_box {
 public:
  explicit post_box(std::size_t senders) : slots_(std::bit_ceil(senders + 1)) {}

  void post(std::uint32_t number) {
    const std::size_t place = tail_.fetch_add(1, std::memory_order_relaxed);
    slots_[place & (slots_.size() - 1)].store(number + 1, std::memory_order_release);
  }
  /// Returns the oldest number, if its post is complete.
  std::optional<std::uint32_t> oldest() const {
    const std::uint32_t found = head().load(std::memory_order_acquire);
    return found == 0 ? std::nullopt : std::optional(found - 1);
  }
  /// Removes and returns the oldest number, if its post is complete. Only one thread at a time may
  /// call it.
  std::optional<std::uint32_t> take() {
    const auto found = oldest();
    if (found) {
      head().store(0, std::memory_order_relaxed);
      head_.store(head_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
    return found;
  }
  bool empty() const { return !oldest(); }

 private:
  const std::atomic<std::uint32_t>& head() const {
    return slots_[head_.load(std::memory_order_relaxed) & (slots_.size() - 1)];
  }
  std::atomic<std::uint32_t>& head() {
    return slots_[head_.load(std::memory_order_relaxed) & (slots_.size() - 1)];
  }

  std::vector<std::atomic<std::uint32_t>> slots_;
  std::atomic<std::size_t> tail_{0};
  std::atomic<std::size_t> head_{0};  // written by `take` only, read by other threads, too
};

}  // namespace tutti
