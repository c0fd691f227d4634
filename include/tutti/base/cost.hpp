#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/units.hpp"

namespace tutti {

/// Latencies in a row and payloads through a NIC, one after the other: the alpha and the beta term
/// of an exchange that has the network to itself.
struct exchange_cost {
  double latencies{};
  double payloads{};
  double sent = payloads;  ///< payloads that the first rank sends, which may share its NIC
  /// Of what hosts send each other alone: ranks of a host have steps of their own.
  bool between_hosts{};
};

/// Time that one message of a given size occupies the link: a start-up, plus a piecewise linear
/// table over bytes. With no table it is the alpha-beta model, alpha + beta * bytes.
class message_cost {
 public:
  struct point {
    std::size_t bytes{};
    seconds time{};
  };

  message_cost() = default;
  message_cost(seconds startup, double seconds_per_byte)
      : startup_(startup), seconds_per_byte_(seconds_per_byte) {}

  /// `table` holds at least two measured points; between them time is interpolated, beyond them the
  /// nearest segment goes on. Throws usage_error if it is too short or its bytes do not ascend.
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
    return left->time + slope * (static_cast<double>(bytes) - static_cast<double>(left->bytes));
  }

  /// Cost of a message of no bytes: what merging two messages saves.
  seconds startup() const { return startup_; }

  /// False for the default, which costs nothing and stands for "not known".
  bool measured() const { return !table_.empty() || startup_ != 0 || seconds_per_byte_ != 0; }

 private:
  seconds startup_{};
  double seconds_per_byte_{};
  std::vector<point> table_{};
};

/// How many bytes so many elements are on the wire: floats, or whatever a compressor, which must
/// outlive this, makes of them.
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

/// What is known of the job when the plan is made; fusion policies that weigh waiting against
/// start-up read it, all others ignore it.
struct profile {
  /// Backward time of each tensor, in forward order. Empty: proportional to its elements.
  std::vector<seconds> backward{};
  /// Backward time of the whole model where `backward` is empty.
  seconds backward_total{};
  /// One collective operation (or push and pull) of so many bytes, as they travel, alone.
  message_cost message{};
  /// What one alone fills of its link: of k at once each takes k times the share as long, if that
  /// is longer.
  double share_of_one{1};
  /// Written by whoever makes the plan, from the strategy's compressor.
  payload_bytes payload{};
};

}  // namespace tutti
