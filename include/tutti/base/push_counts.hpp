#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tutti {

/// What a server counts of the workers' pushes, chunk by chunk. Where other ranks average with a
/// rank's own model at any moment, the rank counts its own gradients instead.
struct push_counts {
  /// Pushes that took effect, by staleness: the number of updates of the chunk since the worker had
  /// read it, not counting the worker's own. The last place also counts all that are staler.
  std::array<std::uint64_t, 32> staleness{};
  std::uint64_t dropped{};  ///< pushes that came too late for their step
  std::uint64_t held{};     ///< pushes whose answer waited until other workers had pushed

  std::uint64_t taken() const {
    std::uint64_t all = 0;
    for (const std::uint64_t each : staleness) {
      all += each;
    }
    return all;
  }
  /// The mean staleness of the pushes that took effect; 0 if there were none.
  double mean_staleness() const {
    double sum = 0;
    for (std::size_t i = 0; i < staleness.size(); ++i) {
      sum += static_cast<double>(i) * static_cast<double>(staleness[i]);
    }
    const std::uint64_t all = taken();
    return all == 0 ? 0 : sum / static_cast<double>(all);
  }

  push_counts& operator+=(const push_counts& more) {
    for (std::size_t i = 0; i < staleness.size(); ++i) {
      staleness[i] += more.staleness[i];
    }
    dropped += more.dropped;
    held += more.held;
    return *this;
  }
  bool operator==(const push_counts&) const = default;
};

/// Counts pushes, on one thread at a time. Any thread may read the counts meanwhile.
class push_counter {
 public:
  void take(std::uint64_t staleness) {
    increment(staleness_[std::min<std::uint64_t>(staleness, staleness_.size() - 1)]);
  }
  void drop() { increment(dropped_); }
  void hold() { increment(held_); }
  push_counts read() const {
    push_counts all;
    for (std::size_t i = 0; i < staleness_.size(); ++i) {
      all.staleness[i] = staleness_[i].load(std::memory_order_relaxed);
    }
    all.dropped = dropped_.load(std::memory_order_relaxed);
    all.held = held_.load(std::memory_order_relaxed);
    return all;
  }

 private:
  using count = std::atomic<std::uint64_t>;
  static void increment(count& its) {
    its.store(its.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  std::array<count, push_counts().staleness.size()> staleness_{};
  count dropped_{0};
  count held_{0};
};

}  // namespace tutti
