#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "tutti/base/tag.hpp"
#include "tutti/base/units.hpp"
#include "tutti/transport/network.hpp"

namespace tutti::transport::detail {

/// Keeps messages of one pair of ranks and one tag in order on a network where a later message may
/// be quicker: no message arrives before the one sent earlier. Cost: on such a network, a lookup in
/// a table of the messages that are on their way.
class arrival_order {
 public:
  explicit arrival_order(const network& over) : overtakes_(over.may_overtake()) {}

  /// Returns when a message's head arrives. On its own it would arrive at `due`.
  template <class Message>
  seconds head(const Message& its, seconds due, seconds now) {
    return overtakes_ ? heads_.behind_earlier({its.from, its.to, its.where}, due, now) : due;
  }
  /// Returns when a message's last byte arrives. On its own it would arrive at `due`.
  template <class Message>
  seconds last_byte(const Message& its, seconds due, seconds now) {
    return overtakes_ ? last_bytes_.behind_earlier({its.from, its.to, its.where}, due, now) : due;
  }

 private:
  struct way {
    int from;
    int to;
    tag where;

    friend bool operator==(const way&, const way&) = default;
  };
  struct hash {
    std::size_t operator()(const way& its) const {
      std::uint64_t mixed = 0;
      for (const auto part :
           {static_cast<std::uint64_t>(its.from), static_cast<std::uint64_t>(its.to),
            std::uint64_t{its.where.chunk}, std::uint64_t{its.where.lane},
            static_cast<std::uint64_t>(its.where.channel)}) {
        mixed = (mixed ^ part) * 0x9E3779B97F4A7C15;
        mixed ^= mixed >> 32;
      }
      return static_cast<std::size_t>(mixed);
    }
  };

  /// When the latest message of each pair and tag arrives.
  class moments {
   public:
    seconds behind_earlier(const way& which, seconds due, seconds now) {
      if (latest_.size() >= most_) {
        std::erase_if(latest_, [now](const auto& each) { return each.second <= now; });
        most_ = std::max(most_, 2 * latest_.size());
      }
      seconds& last = latest_[which];
      last = std::max(last, due);
      return last;
    }

   private:
    std::unordered_map<way, seconds, hash> latest_;
    std::size_t most_ = 1024;
  };

  bool overtakes_;
  moments heads_;
  moments last_bytes_;
};

}  // namespace tutti::transport::detail
