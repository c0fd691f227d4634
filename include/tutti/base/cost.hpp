#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/units.hpp"

namespace tutti {

/// The cost of an exchange that has the network to itself, in the terms of the alpha-beta model:
/// how many latencies follow one another, and how many payloads pass one NIC one after the other.
struct exchange_cost {
  double latencies{};
  double payloads{};
  double sent = payloads;  ///< payloads that the first rank sends; it may share its NIC
  /// Whether the cost is only that of messages between hosts. Ranks of one host then exchange
  /// messages in steps of their own.
  bool between_hosts{};
};

/// The time for which one message of a given size occupies the link: a piecewise linear table over
/// bytes, or, without a table, the alpha-beta model, alpha + beta * bytes.
class message_cost {
 public:
  struct point {
    std::size_t bytes{};
    seconds time{};
  };

  message_cost() = default;
  message_cost(seconds startup, double seconds_per_byte)
      : startup_(startup), seconds_per_byte_(seconds_per_byte) {}

  /// `table` holds at least two measured points. Between them the time is interpolated, and beyond
  /// them the nearest segment is continued, though not below 0. Throws usage_error if the table is
  /// too short or its bytes do not ascend.
  explicit message_cost(std::vector<point> table) : table_(std::move(table)) {
    const auto not_ascending = [](const point& a, const point& b) { return a.bytes >= b.bytes; };
    if (table_.size() < 2 ||
        std::adjacent_find(table_.begin(), table_.end(), not_ascending) != table_.end()) {
      throw usage_error(
          "a cost table needs at least two points, in ascending order of bytes. Fix: sort or add "
          "points");
    }
    startup_ = (*this)(0);
  }

  seconds operator()(std::size_t bytes) const {
    if (table_.empty()) {
      return startup_ + seconds_per_byte_ * static_cast<double>(bytes);
    }
    auto right =
        std::upper_bound(table_.begin(), table_.end(), bytes,
                         [](std::size_t least, const point& each) { return least < each.bytes; });
    right = std::clamp(right, table_.begin() + 1, table_.end() - 1);
    const auto left = right - 1;
    const double slope =
        (right->time - left->time) / static_cast<double>(right->bytes - left->bytes);
    return std::max(
        0.0, left->time + slope * (static_cast<double>(bytes) - static_cast<double>(left->bytes)));
  }

  /// The cost of a message of no bytes, which is what merging two messages saves.
  seconds startup() const { return startup_; }

  /// False for a default message_cost, which costs nothing and means that the cost is not known.
  bool measured() const { return !table_.empty() || startup_ != 0 || seconds_per_byte_ != 0; }

 private:
  seconds startup_{};
  double seconds_per_byte_{};
  std::vector<point> table_{};
};

/// A function from a number of elements to their bytes on the wire: as floats, or as a compressor
/// encodes them. The compressor must outlive it.
class payload_bytes {
 public:
  using length = std::size_t (*)(const void* its, std::size_t elements);

  payload_bytes() = default;
  payload_bytes(const void* its, length of) : its_(its), of_(of) {}

  std::size_t operator()(std::size_t elements) const {
    return of_ == nullptr ? elements * sizeof(float) : of_(its_, elements);
  }

 private:
  const void* its_{};
  length of_{};
};

/// What is known of the job when the plan is made. Fusion policies that weigh waiting against
/// start-up costs read it, and schedule::at_most, which chooses how many exchanges run at once. All
/// other policies ignore it.
struct profile {
  /// The backward time of each tensor, in forward order. If empty, times are proportional to
  /// elements.
  std::vector<seconds> backward{};
  /// The backward time of the whole model, used if `backward` is empty.
  seconds backward_total{};
  /// The time of one collective operation (or push and pull) that has the network to itself, as a
  /// function of its bytes on the wire.
  message_cost message{};
  /// The share of its link's rate that one such operation attains when it is alone. Of k at the
  /// same time each takes max(1, k * share_of_one) times as long.
  double share_of_one{1};
  /// Set from the strategy's compressor where the plan is made.
  payload_bytes payload{};
};

}  // namespace tutti
