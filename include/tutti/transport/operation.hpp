#pragma once

#include <algorithm>
#include <atomic>
#include <coroutine>
#include <cstddef>
#include <exception>
#include <limits>
#include <utility>

#include "tutti/base/assert.hpp"
#include "tutti/base/fifo.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/units.hpp"

namespace tutti::transport::detail {

/// A transfer or a sleep that a coroutine awaits; the operations of all transports derive from it.
/// An exchange has two halves, its send and its receive, and any other operation has one. The
/// coroutine resumes when every half has completed. The constructor begins the transfer, and the
/// object stays in place, in the frame of the coroutine that awaits it, until the transfer ends.
class operation {
 public:
  operation(run_queue& queue, int halves) : queue_(&queue), pending_(halves) {}
  operation(const operation&) = delete;
  operation& operator=(const operation&) = delete;
  ~operation() {
    TUTTI_ASSERT(pending_ == 0, "a coroutine was destroyed while its operation was in flight");
  }

  bool await_ready() const noexcept { return pending_ == 0; }
  void await_suspend(std::coroutine_handle<> waiter) noexcept { waiter_ = waiter; }
  void await_resume() const {
    if (failure_) {
      tutti::detail::rethrow(failure_);
    }
  }

  void complete() {
    if (--pending_ == 0 && waiter_) {
      queue_->push(waiter_);
    }
  }

  operation* next{};  // in the list of failed operations, which wait until nothing is in flight

 protected:
  /// Adds a half, in an operation that usually completes before its coroutine suspends.
  void expect_half() { ++pending_; }

 private:
  friend class under_way;

  run_queue* queue_;
  std::coroutine_handle<> waiter_ = nullptr;
  int pending_;
  int parked_ = 0;  // halves that are over, while the coroutine must not resume yet
  std::exception_ptr failure_ = nullptr;
};

/// The halves that one rank's end of a transport has in flight.
///
/// After a failure no coroutine may resume while anything is in flight, since a coroutine that
/// unwinds frees the memory of its other operations. So halves that end after a failure are parked,
/// and their coroutines resume together, with the exception, when nothing is in flight. No
/// operation succeeds after a failure.
class under_way {
 public:
  std::size_t count() const { return count_; }
  const std::exception_ptr& failure() const { return failure_; }
  bool failed() const { return failure_ != nullptr; }

  /// Counts a half as in flight.
  void begin() { ++count_; }
  /// Ends a half that is over at its peer as well.
  void end(operation& its) {
    --count_;
    end_local(its);
  }
  /// Ends something that was counted as in flight but is no half of an operation.
  void end() {
    --count_;
    settle();
  }
  /// Ends a half that was refused, because of a failure of which this rank learns in the same poll.
  void end_refused(operation& its) {
    --count_;
    park(its);
  }
  /// Completes or parks a half without counting. Called directly for one that was never in flight
  /// (a sleep).
  void end_local(operation& its) {
    if (failed()) {
      park(its);
    } else {
      its.complete();
    }
  }
  /// Parks a half that could not begin or is over; it fails when nothing is in flight.
  void park(operation& its) {
    if (its.parked_++ == 0) {
      parked_.push(its);
    }
    settle();
  }

  void fail(std::exception_ptr why) { failure_ = std::move(why); }

  /// After a failure, resumes the parked operations if nothing is in flight any more.
  void settle() {
    if (!failed() || count_ != 0) {
      return;
    }
    while (operation* each = parked_.pop()) {
      each->failure_ = failure_;
      for (; each->parked_ > 1; --each->parked_) {
        --each->pending_;
      }
      each->parked_ = 0;
      each->complete();
    }
  }

 private:
  std::size_t count_ = 0;
  std::exception_ptr failure_;
  fifo<operation> parked_;
};

/// A sleep, which completes when the transport's clock shows `due`.
class sleep_operation : public operation {
 public:
  /// `lay_down(*this)` hands the sleep to whatever watches the clock.
  template <class LayDown>
  sleep_operation(run_queue& queue, under_way& flights, seconds when, LayDown lay_down)
      : operation(queue, 1), due(when) {
    if (flights.failed()) {
      flights.park(*this);
    } else {
      lay_down(*this);
    }
  }

  sleep_operation* next_sleeper{};
  seconds due;
};

/// One rank's sleeps, the earliest first. They are a handful at most, so this is a list.
class sleepers {
 public:
  void add(sleep_operation& fresh) {
    sleep_operation** link = &first_;
    while (*link != nullptr && (*link)->due <= fresh.due) {
      link = &(*link)->next_sleeper;
    }
    fresh.next_sleeper = *link;
    *link = &fresh;
    tell();
  }

  bool empty() const { return first_ == nullptr; }
  /// Returns `nap`, or less if a sleep is due earlier. Any thread may ask.
  seconds cut_short(seconds nap, seconds now) const {
    return std::clamp(due_.load(std::memory_order_relaxed) - now, 0.0, nap);
  }

  /// Ends every sleep that is due, the earliest first. Returns true if there was one.
  bool wake(seconds now, under_way& flights) {
    bool any = false;
    while (first_ != nullptr && first_->due <= now) {
      flights.end_local(pop());
      any = true;
    }
    return any;
  }

  [[gnu::cold]] void fail(under_way& flights) {
    while (first_ != nullptr) {
      flights.park(pop());
    }
  }

 private:
  sleep_operation& pop() {
    sleep_operation& next = *std::exchange(first_, first_->next_sleeper);
    tell();
    return next;
  }
  void tell() {
    due_.store(first_ == nullptr ? std::numeric_limits<seconds>::infinity() : first_->due,
               std::memory_order_relaxed);
  }

  sleep_operation* first_ = nullptr;
  // When the first sleep is due; any thread may read it.
  std::atomic<seconds> due_{std::numeric_limits<seconds>::infinity()};
};

}  // namespace tutti::transport::detail
