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

/// What a coroutine awaits: it resumes when every half has completed, of which an exchange has two,
/// its send and its receive, and anything else one. All transports' operations derive from this.
/// The constructor begins the transfer, and the object stays where it is, in the frame of the
/// coroutine that awaits it, until the transfer ends.
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

  operation* next{};  // among those that failed and wait until nothing is in flight

 protected:
  /// For an operation that usually completes before anybody suspends.
  void expect_half() { ++pending_; }

 private:
  friend class under_way;

  run_queue* queue_;
  std::coroutine_handle<> waiter_ = nullptr;
  int pending_;
  int parked_ = 0;  // halves that are over, but whose coroutine must not learn it yet
  std::exception_ptr failure_ = nullptr;
};

/// What one rank's end of a transport has started and not got back.
///
/// After a failure no coroutine goes on before nothing is in flight any more: one that unwinds
/// takes its other operations' memory with it. So failed operations are parked, and resume together
/// when nothing is in flight; after a failure nothing completes well any more.
class under_way {
 public:
  std::size_t count() const { return count_; }
  const std::exception_ptr& failure() const { return failure_; }
  bool failed() const { return failure_ != nullptr; }

  /// A half is in flight.
  void begin() { ++count_; }
  /// It is over, at its peer too.
  void end(operation& its) {
    --count_;
    end_local(its);
  }
  /// Something in flight that is no half of an operation is over.
  void end() {
    --count_;
    settle();
  }
  /// It is over, refused: somebody else's failure, of which this rank learns in this poll.
  void end_refused(operation& its) {
    --count_;
    park(its);
  }
  /// A half that was never in flight (a sleep) is over.
  void end_local(operation& its) {
    if (failed()) {
      park(its);
    } else {
      its.complete();
    }
  }
  /// A half that could not begin or is over, and fails when nothing is in flight.
  void park(operation& its) {
    if (its.parked_++ == 0) {
      parked_.push(its);
    }
    settle();
  }

  void fail(std::exception_ptr why) { failure_ = std::move(why); }

  /// Resumes the parked if nothing is in flight any more.
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

/// Goes on when the transport's clock shows `due`.
class sleep_operation : public operation {
 public:
  /// `lay_down(*this)` hands it to whoever watches the clock.
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

/// Coroutines that sleep on a real clock. A handful at most, so a list.
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
  /// `nap`, or until somebody is due. Any thread may ask.
  seconds cut_short(seconds nap, seconds now) const {
    return std::clamp(due_.load(std::memory_order_relaxed) - now, 0.0, nap);
  }

  /// Wakes whoever is due, the earliest first; says whether there was one.
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
  std::atomic<seconds> due_{std::numeric_limits<seconds>::infinity()};  // the first
};

}  // namespace tutti::transport::detail
