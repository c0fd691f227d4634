#pragma once

#include <mutex>

#include "tutti/base/error.hpp"
#include "tutti/base/task.hpp"

namespace tutti {

/// An engine's claim to its rank of a transport, held for as long as the engine lives. Messages of
/// chunks, of decisions and of the shutdown are numbered by an engine's plan alone, so that a
/// second engine on the transport would receive messages of the first.
///
/// The claim is to a pair of coroutine queue and rank. A transport that wraps another one shares
/// its queue, and ranks that share one loop differ by their number.
/// Cost: a lock and a look at every engine of this process, when an engine is made and when it
/// ends.
class claim {
 public:
  /// Throws usage_error if another engine has claimed this rank of the transport.
  [[gnu::cold]] claim(const run_queue& loop, int rank) : loop_(&loop), rank_(rank) {
    const std::scoped_lock lock(mutex());
    if (is_listed(loop, rank)) {
      throw usage_error(
          sentence({"rank ", rank,
                    " trains over this transport already, and a second engine would take the first "
                    "one's messages. Fix: give it its own transport (a second transport::mpi "
                    "duplicates the communicator; any other kind is made anew, or by another "
                    "run_ranks), or end the first engine"}));
    }
    earlier_ = latest();
    latest() = this;
  }
  claim(const claim&) = delete;
  claim& operator=(const claim&) = delete;
  [[gnu::cold]] ~claim() {
    const std::scoped_lock lock(mutex());
    claim** its = &latest();
    while (*its != this) {
      its = &(*its)->earlier_;
    }
    *its = earlier_;
  }

  /// Returns whether an engine has claimed this rank of the transport.
  [[gnu::cold]] static bool is_made(const run_queue& loop, int rank) {
    const std::scoped_lock lock(mutex());
    return is_listed(loop, rank);
  }

 private:
  static bool is_listed(const run_queue& loop, int rank) {
    const claim* each = latest();
    while (each != nullptr && (each->loop_ != &loop || each->rank_ != rank)) {
      each = each->earlier_;
    }
    return each != nullptr;
  }
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  /// The head of the list of claims. A pointer, so that it is never destroyed: an engine with
  /// static storage may end after any other static object.
  static claim*& latest() {
    static claim* one = nullptr;
    return one;
  }

  const run_queue* loop_;
  int rank_;
  claim* earlier_ = nullptr;
};

}  // namespace tutti
