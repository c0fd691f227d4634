#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <sched.h>
#include <thread>

#include "tutti/base/assert.hpp"
#include "tutti/base/predicate.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/units.hpp"
#include "tutti/core/engine_options.hpp"
#include "tutti/core/loop_round.hpp"
#include "tutti/core/progress_thread.hpp"
#include "tutti/role/transport.hpp"

namespace tutti {

/// Drives a rank's communication, either from the threads that call the engine or from a progress
/// thread. One thread at a time owns the loop and makes rounds of it by `Owner::go_round(world)`.
/// `Owner::has_posts()` says whether a tensor has become ready since the last round,
/// `Owner::failed()` ends every wait, and `Owner::broken(exception)` receives what the loop throws.
template <class Transport, class Owner>
class driver {
 public:
  driver(Transport& world, Owner& owner) : world_(&world), owner_(&owner) {}
  driver(const driver&) = delete;
  driver& operator=(const driver&) = delete;
  [[gnu::cold]] ~driver() { stop_thread(); }

  /// Starts driving by the progress thread if `wanted` says so. `progress::automatic` does where
  /// this host has two cores for each of its ranks and this rank is not bound to a single core.
  /// Does nothing where the transport is single-threaded.
  [[gnu::cold]] void start_thread(progress wanted) {
    const unsigned cores = std::thread::hardware_concurrency();
    const bool roomy = 2 * static_cast<unsigned>(ranks_here(*world_)) <= cores && !on_one_core();
    bool allowed = true;
    if constexpr (requires { world_->single_threaded(); }) {
      allowed = !world_->single_threaded();
    }
    if (allowed && (wanted == progress::by_thread || (wanted == progress::automatic && roomy))) {
      thread_ = is_a_process(*world_) ? progress_thread::of_this_process()
                                      : std::make_shared<progress_thread>();
      thread_->add(loop_);
    }
  }
  void stop_thread() {
    if (thread_) {
      thread_->remove(loop_);
      thread_.reset();
    }
  }

  /// Returns whether a progress thread drives this rank.
  bool has_thread() const { return thread_ != nullptr; }

  /// Called after something was posted: wakes the progress thread or, without one, makes progress
  /// on the calling thread.
  void nudge() {
    if (thread_) {
      thread_->wake();
    } else {
      make_progress();
    }
  }

  /// Calls `act` while owning the loop. Coroutines are only ever started and resumed by its owner.
  template <class Act>
  void exclusively(Act act) {
    expect_outside();
    while (driven_.exchange(true)) {
      std::this_thread::yield();
    }
    const turn mine(driven_);
    act();
  }

  /// Drives until `done` or failure, and then returns true. Returns false once nothing at all has
  /// moved for `limit` seconds, whichever thread drives.
  bool drive_until(predicate done, seconds limit) {
    expect_outside();
    const progress_thread::waiter mine(thread_.get());
    std::uint64_t seen = moves_.load(std::memory_order_relaxed);
    seconds since = world_->now();
    for (std::size_t idle = 0;;) {
      const std::uint64_t moved = thread_ ? thread_->moves() : 0;
      if (done() || owner_->failed()) {
        return true;
      }
      if (step()) {
        idle = 0;
      } else if (thread_ && idle >= glances) {
        thread_->wait_for_more(moved, world_->idle(idle++ - glances + naps_from));
      } else {
        rest(*world_, idle++);
        if (idle % 256 != 0) {
          continue;
        }
      }
      if (const std::uint64_t moves = moves_.load(std::memory_order_relaxed); moves != seen) {
        seen = moves;
        since = world_->now();
      } else if (world_->now() - since > limit) {
        return false;
      }
    }
  }
  /// Drives until `done` or failure, however long it takes.
  void drive_until(predicate done) { drive_until(done, std::numeric_limits<seconds>::infinity()); }

  /// Drives until `done`, even after a failure. Returns false after `limit` seconds.
  bool drive_for(predicate done, seconds limit) {
    const seconds end = world_->now() + limit;
    for (std::size_t idle = 0; !done();) {
      if (!step()) {
        rest(*world_, idle++);
      }
      if (world_->now() > end) {
        return false;
      }
    }
    return true;
  }

 private:
  /// Returns whether the calling thread may run on one core only, as mpirun binds the ranks of a
  /// job of two ranks.
  static bool on_one_core() {
    cpu_set_t mine;
    return sched_getaffinity(0, sizeof mine, &mine) == 0 && CPU_COUNT(&mine) == 1;
  }

  /// Asserts that the caller is no coroutine of the loop: blocked, it would wait for its own
  /// thread.
  void expect_outside() const {
    TUTTI_ASSERT(!world_->ready_coroutines().draining(),
                 "a blocking wait inside a coroutine: await arrival(id) instead");
  }

  /// Holds the ownership of the loop, and gives it up also when an exception passes.
  class turn {
   public:
    explicit turn(std::atomic<bool>& driven) : driven_(&driven) {}
    turn(const turn&) = delete;
    turn& operator=(const turn&) = delete;
    /// Exchanges, because a store would not be ordered before the look for posts that follows.
    ~turn() { driven_->exchange(false); }

   private:
    std::atomic<bool>* driven_;
  };

  bool step() { return !thread_ && make_progress(); }

  /// Makes rounds as the loop's owner. Returns false if another thread owns the loop, or nothing
  /// happened.
  bool make_progress() {
    bool any = false;
    bool more = false;
    do {
      if (driven_.exchange(true)) {
        return any;
      }
      const turn mine(driven_);
      try {
        const loop_round now = owner_->go_round(*world_);
        any |= now != loop_round::nothing;
        more = now == loop_round::more;
        if (now >= loop_round::moves) {
          moves_.store(moves_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        }
      } catch (...) {
        owner_->broken(std::current_exception());
        return any;
      }
      // Threads that posted during the round found the loop taken and left, so their posts are
      // taken in here.
    } while (more || owner_->has_posts());
    return any;
  }

  /// Rounds of polling before a caller that waits for the progress thread sleeps.
  static constexpr std::size_t glances = 1000;

  Transport* world_;
  Owner* owner_;
  std::atomic<bool> driven_{false};
  std::atomic<std::uint64_t> moves_{0};  // written by the loop's owner alone
  std::shared_ptr<progress_thread> thread_{};
  progress_loop loop_{
      .self = this,
      .move = [](void* self) { return static_cast<driver*>(self)->make_progress(); },
      .has_work = [](void* self) { return static_cast<driver*>(self)->owner_->has_posts(); },
      .idle = [](void* self, std::size_t polls,
                 urgency who) { return static_cast<driver*>(self)->world_->idle(polls, who); },
      .begin =
          [](void* self) {
            make_device_current(static_cast<driver*>(self)->world_->queue());
          }};  // this loop, as the progress thread sees it
};

}  // namespace tutti
