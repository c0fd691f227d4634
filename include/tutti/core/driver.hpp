#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>

#include "tutti/base/assert.hpp"
#include "tutti/base/predicate.hpp"
#include "tutti/base/units.hpp"
#include "tutti/core/engine_options.hpp"

namespace tutti {

/// Moves a rank's communication forward: whoever calls, or a thread of its own. One thread at a
/// time owns the loop. `Owner::open_posts()` takes in what became ready, `Owner::has_posts()` says
/// whether something is waiting, `Owner::carry_out()` starts what `Owner::has_decided()`, now that
/// others have been told, `Owner::failed()` ends every wait.
template <class Transport, class Owner>
class driver {
 public:
  driver(Transport& world, Owner& owner) : world_(&world), owner_(&owner) {}
  driver(const driver&) = delete;
  driver& operator=(const driver&) = delete;
  ~driver() { stop_thread(); }

  /// From now on a thread makes progress, if `wanted` or, automatically, where cores are free.
  void start_thread(progress wanted) {
    const unsigned cores = std::thread::hardware_concurrency();
    const bool roomy = 2 * static_cast<unsigned>(world_->size()) <= cores;
    bool allowed = true;
    if constexpr (requires { world_->single_threaded(); }) {
      allowed = !world_->single_threaded();
    }
    if (allowed && (wanted == progress::by_thread || (wanted == progress::automatic && roomy))) {
      thread_ = std::thread([this] { run_thread(); });
    }
  }
  void stop_thread() {
    if (thread_.joinable()) {
      leaving_.store(true, std::memory_order_release);
      thread_.join();
    }
  }

  /// Something was posted: the caller moves it on, unless a thread does.
  void nudge() {
    if (!thread_.joinable()) {
      make_progress();
    }
  }

  /// Calls `act` as the loop's owner: coroutines are started, and left, by nobody else.
  template <class Act>
  void exclusively(Act act) {
    while (driven_.test_and_set(std::memory_order_acquire)) {
      std::this_thread::yield();
    }
    const turn mine(driven_);
    act();
  }

  /// Drives until `done` or failure; false if nothing at all happened for `limit` seconds.
  bool drive_until(predicate done, seconds limit) {
    TUTTI_ASSERT(thread_.joinable() || !world_->ready_coroutines().draining(),
                 "a blocking wait inside a coroutine: await arrival(id) instead");
    std::size_t idle = 0;
    seconds since = world_->now();
    while (!done() && !owner_->failed()) {
      if (step()) {
        idle = 0;
        since = world_->now();
        continue;
      }
      world_->idle(idle++);
      if (idle % 256 == 0 && world_->now() - since > limit) {
        return false;
      }
    }
    return true;
  }

  /// Drives until `done`, failure or not; false after `limit` seconds.
  bool drive_for(predicate done, seconds limit) {
    const seconds end = world_->now() + limit;
    for (std::size_t idle = 0; !done();) {
      if (!step()) {
        world_->idle(idle++);
      }
      if (world_->now() > end) {
        return false;
      }
    }
    return true;
  }

 private:
  /// Until it ends, also by an exception, the loop is somebody's.
  class turn {
   public:
    explicit turn(std::atomic_flag& driven) : driven_(&driven) {}
    turn(const turn&) = delete;
    turn& operator=(const turn&) = delete;
    ~turn() { driven_->clear(std::memory_order_release); }

   private:
    std::atomic_flag* driven_;
  };

  bool step() { return !thread_.joinable() && make_progress(); }

  /// A moment as the loop's owner; false if somebody else is, or nothing happened.
  bool make_progress() {
    bool any = false;
    bool more = false;
    do {
      more = false;
      if (driven_.test_and_set(std::memory_order_acquire)) {
        return any;
      }
      const turn mine(driven_);
      any |= owner_->open_posts();
      if constexpr (!Transport::virtual_time) {
        any |= world_->poll();
        auto& coroutines = world_->ready_coroutines();
        if (!coroutines.draining()) {
          any |= coroutines.drain() > 0;
          any |= owner_->carry_out();
          more = owner_->has_decided();
        }
        any |= owner_->open_posts();
      }
      // Posted while the loop was ours, when nobody else could.
    } while (more || owner_->has_posts());
    return any;
  }

  void run_thread() {
    std::size_t idle = 0;
    while (!leaving_.load(std::memory_order_acquire)) {
      if (make_progress()) {
        idle = 0;
      } else {
        world_->idle(idle++);
      }
    }
  }

  Transport* world_;
  Owner* owner_;
  std::atomic_flag driven_{};
  std::atomic<bool> leaving_{false};
  std::thread thread_{};
};

}  // namespace tutti
