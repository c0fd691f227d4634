#pragma once

#include <algorithm>
#include <list>

#include "tutti/base/fifo.hpp"

namespace tutti::transport::detail {

/// One channel's messages for whoever receives from anybody, from their first piece on. One that is
/// still on its way, over a slow link perhaps, holds up no other sender's; of one sender each comes
/// behind what it sent before. Nothing is allocated after the most have been on their way at once.
template <class Transfer>
class arrivals {
 public:
  /// A receive from anybody waits.
  void wait(Transfer& in) { waiting_.push(in); }
  bool awaited() const { return !waiting_.empty(); }
  /// The next to be served, who waits no longer; null if nobody does.
  Transfer* next_waiting() { return waiting_.pop(); }

  /// The first piece of `fresh` has been found.
  Transfer& begin(const Transfer& fresh) {
    if (spare_.empty()) {
      spare_.emplace_back();
    }
    spare_.front() = fresh;
    coming_.splice(coming_.end(), spare_, spare_.begin());
    return coming_.back();
  }
  /// The first that has come and that no earlier one of its sender's precedes; null if there is
  /// none. It stays as it is until the next begins.
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
  std::list<Transfer> coming_;  // as they were found
  std::list<Transfer> spare_;
};

}  // namespace tutti::transport::detail
