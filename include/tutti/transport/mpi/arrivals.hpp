#pragma once

#include <algorithm>
#include <list>

#include "tutti/base/fifo.hpp"

namespace tutti::transport::detail {

/// One channel's messages for receives from any rank, from each message's first piece on. A message
/// that is still on its way, over a slow link perhaps, holds up no other sender's; messages of one
/// sender are handed out in the order in which it sent them. Nothing is allocated once the most
/// messages have been on their way at once.
template <class Transfer>
class arrivals {
 public:
  /// Queues a receive from any rank.
  void wait(Transfer& in) { waiting_.push(in); }
  bool awaited() const { return !waiting_.empty(); }
  /// Takes the receive that is next to be served out of the queue; null if none waits.
  Transfer* next_waiting() { return waiting_.pop(); }

  /// Adds a copy of `fresh`, whose first piece has been found, and returns the copy.
  Transfer& begin(const Transfer& fresh) {
    if (spare_.empty()) {
      spare_.emplace_back();
    }
    spare_.front() = fresh;
    coming_.splice(coming_.end(), spare_, spare_.begin());
    return coming_.back();
  }
  /// Returns the first message that has come whole and that no earlier message of its sender
  /// precedes; null if there is none. It stays valid until the next `begin`.
  const Transfer* take() {
    for (auto each = coming_.begin(); each != coming_.end(); ++each) {
      const bool is_next = std::none_of(coming_.begin(), each, [&](const Transfer& earlier) {
        return earlier.peer == each->peer;
      });
      if (each->over() && !each->failed && is_next) {
        spare_.splice(spare_.begin(), coming_, each);
        return &spare_.front();
      }
    }
    return nullptr;
  }

 private:
  fifo<Transfer> waiting_;
  std::list<Transfer> coming_;  // in the order in which they were found
  std::list<Transfer> spare_;
};

}  // namespace tutti::transport::detail
