#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace tutti {

/// What servers count of workers' pushes, chunk by chunk; or, where a rank's own model is averaged
/// with others' at any moment, the rank of its own gradients.
struct push_counts {
  /// Pushes that took effect, by their staleness: so many updates of a chunk were made since the
  /// worker had read it, not counting its own. The last place is for that many and all above.
  std::array<std::uint64_t, 32> staleness{};
  std::uint64_t dropped{};  ///< that came too late for their step
  std::uint64_t held{};     ///< whose answer waited until other workers had pushed

  void take(std::uint64_t its_staleness) {
    ++staleness[std::min<std::uint64_t>(its_staleness, staleness.size() - 1)];
  }
  std::uint64_t taken() const {
    std::uint64_t all = 0;
    for (const std::uint64_t each : staleness) {
      all += each;
    }
    return all;
  }
  /// Of those that took effect; 0 where none has.
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

}  // namespace tutti
