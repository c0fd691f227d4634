#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>

#include "tutti/base/error.hpp"
#include "tutti/base/predicate.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/units.hpp"
#include "tutti/core/driver.hpp"
#include "tutti/core/engine_base.hpp"
#include "tutti/core/engine_options.hpp"
#include "tutti/core/failure.hpp"
#include "tutti/core/watch.hpp"
#include "tutti/role/transport.hpp"

namespace tutti {

/// How a rank waits for others. It drives its communication, or leaves that to whichever thread
/// does. When nothing has moved for a deadline, it asks the other ranks what they are doing.
template <class Transport>
class waiting {
 public:
  [[gnu::cold]] waiting(Transport& world, engine_base<Transport>& owner,
                        const failure<Transport>& ended, seconds deadline)
      : world_(&world),
        owner_(&owner),
        ended_(&ended),
        deadline_(deadline),
        driver_(world, owner),
        watch_(world, owner) {}
  waiting(const waiting&) = delete;
  waiting& operator=(const waiting&) = delete;

  // ---- who drives this rank

  void start_thread(progress wanted) { driver_.start_thread(wanted); }
  void stop_thread() { driver_.stop_thread(); }
  bool has_thread() const { return driver_.has_thread(); }
  void nudge() { driver_.nudge(); }
  template <class Act>
  void exclusively(Act act) {
    driver_.exclusively(act);
  }

  // ---- questions of other ranks

  void start_answering() { watch_.start(); }
  task stop_answering() { return watch_.stop(); }
  bool at_rest() const { return watch_.at_rest(); }
  void excuse(int rank) { watch_.excuse(rank); }
  /// Threads that wait here now.
  std::uint32_t threads() const { return threads_.load(std::memory_order_relaxed); }

  // ---- waiting

  /// Returns when `done`. Throws if this rank's part ends first, which also happens if a rank holds
  /// it up for too long.
  void until(predicate done) {
    in_time(done);
    ended_->rethrow();
  }
  /// Waits until `done` or failure. A rank that holds this one up for too long is a failure.
  void in_time(predicate done) {
    const waiter mine(threads_);
    const seconds begin = world_->now();
    while (!driver_.drive_until(done, deadline_)) {
      diagnose(done, begin);
    }
  }
  /// Waits until `done` or failure, without a deadline.
  void however_long(predicate done) { driver_.drive_until(done); }
  /// Returns whether `done` within a deadline.
  bool for_a_deadline(predicate done) { return driver_.drive_for(done, deadline_); }

  /// Waits until the stream has done what is enqueued. Since peers may hold the stream up, the host
  /// polls it, and asks them after a deadline. It must neither block for ever nor take for a result
  /// what a failure has left in memory.
  template <class World = Transport>
  requires is_stream_ordered<World>
  void until_the_stream_has_come() {
    auto& queue = world_->queue();
    const auto end = queue.record();
    const auto passed = [&] { return queue.passed(end); };
    const waiter mine(threads_);
    const seconds begin = world_->now();
    while (!passed() && !ended_->happened()) {
      driver_.drive_until([&] { return passed() || world_->troubled(); }, deadline_);
      driver_.exclusively([this] { owner_->hear_of_failure(); });
      if (!passed() && !ended_->happened()) {
        diagnose(passed, begin);
        driver_.exclusively([this] { owner_->hear_of_failure(); });
      }
    }
    ended_->rethrow();
  }

  /// Runs `asking` on the loop, and blocks until it has ended, also after a failure, because it
  /// refers to memory of its caller.
  void run(task& asking) {
    run(asking, [this](predicate done) { in_time(done); });
  }
  /// Likewise, without a deadline for what others do.
  void run_however_long(task& asking) {
    run(asking, [this](predicate done) { however_long(done); });
  }

  /// Waits until other ranks have given this rank's memory back. A peer that computes does so with
  /// its next call, within the deadline. If one does not, abandons the job.
  void settle(predicate done) {
    if (!driver_.drive_for(done, std::max(settle_time, deadline_))) {
      abandon(*world_, ended_->words());
    }
  }

 private:
  /// Counts the calling thread among those that wait here, of which others are told when they ask.
  class waiter {
   public:
    explicit waiter(std::atomic<std::uint32_t>& all) : all_(&all) {
      all_->fetch_add(1, std::memory_order_relaxed);
    }
    waiter(const waiter&) = delete;
    waiter& operator=(const waiter&) = delete;
    ~waiter() { all_->fetch_sub(1, std::memory_order_relaxed); }

   private:
    std::atomic<std::uint32_t>* all_;
  };

  template <class Wait>
  void run(task& asking, Wait wait) {
    std::atomic<bool> ended{false};
    const auto done = [&ended] { return ended.load(std::memory_order_acquire); };
    task watched = tell_when_ended(asking, ended);
    driver_.exclusively([&] { watched.start(world_->ready_coroutines()); });
    wait(done);
    settle(done);
    driver_.exclusively([] {});  // until the loop has left the coroutine
    ended_->rethrow();
    asking.result();
  }

  task tell_when_ended(const task& asking, std::atomic<bool>& ended) {
    try {
      co_await asking;
    } catch (...) {
    }  // it stays in `asking`
    ended.store(true, std::memory_order_release);
  }

  /// Called when nothing has moved for a deadline: asks all ranks about the chunk that is missing.
  /// Ends every rank's part with the verdict on their answers, if there is one.
  [[gnu::cold]] void diagnose(predicate done, seconds begin) {
    const auto over = [&] { return done() || ended_->happened(); };
    bool asks = false;
    driver_.exclusively([&] {
      const bool asked = watch_.asked_at() >= begin;
      if (over() || (asked && world_->now() - watch_.asked_at() < deadline_ && !complains())) {
        return;  // another thread has asked less than a deadline ago
      }
      watch_.ask(owner_->stuck(), begin);
      asks = true;
    });
    if (!asks) {
      return;
    }
    // Progress prolongs this wait, because an answer may be queued behind messages that move.
    driver_.drive_until([&] { return over() || watch_.everybody_answered(); },
                        std::min(deadline_, answer_time));
    driver_.exclusively([&] {
      if (!over()) {
        owner_->end_with(verdict());
      }
    });
  }

  /// Returns whether the transport's library reports an error.
  bool complains() const {
    if constexpr (is_stream_ordered<Transport>) {
      return !world_->complaint().empty();
    } else {
      return false;
    }
  }

  /// Says why nothing moves: that a rank does not answer, or what the answers amount to. Empty
  /// while the wait should go on.
  [[gnu::cold]] std::string verdict() {
    const std::string silent = watch_.silent();
    if constexpr (is_stream_ordered<Transport>) {
      if (complains()) {
        return silent.empty() ? world_->complaint()
                              : sentence({silent, " (", world_->complaint(), ")"});
      }
    }
    if (watch_.is_held()) {
      return {};
    }
    return silent.empty() ? watch_.verdict(owner_->tensors()) : silent;
  }

  /// A lost host is to be named, and the job ended, within a deadline and ten seconds. Half of the
  /// ten belong to the transport, for ending all ranks together.
  static constexpr seconds answer_time = 4;

  Transport* world_;
  engine_base<Transport>* owner_;
  const failure<Transport>* ended_;
  seconds deadline_;
  driver<Transport, engine_base<Transport>> driver_;
  watch<Transport> watch_;
  std::atomic<std::uint32_t> threads_{0};
};

}  // namespace tutti
