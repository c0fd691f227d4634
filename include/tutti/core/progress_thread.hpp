#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "tutti/base/start_thread.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/transport.hpp"

namespace tutti {

/// A rank's loop as the progress thread sees it. It must not move in memory while the thread has
/// it.
struct progress_loop {
  void* self;
  bool (*move)(void*);      ///< drives the loop for a moment; returns whether anything moved
  bool (*has_work)(void*);  ///< returns whether something has been posted since
  seconds (*idle)(void*, std::size_t, urgency);  ///< the transport's `idle`
  void (*begin)(void*) = [](void*) {};           ///< called on the thread before the first `move`
  bool begun = false;                            ///< `begin` has been called
  progress_loop* next = nullptr;                 ///< of the thread's list
};

/// A thread that drives communication while the model computes. The engines of one process share
/// it. It polls in quick succession while something moves, and for some time longer if a caller
/// waits. Otherwise the model needs the core, so that after a few idle polls the thread sleeps
/// between two polls, for as long as the transports allow or until something is posted.
///
/// Cost where nothing happens: a poll every 6 milliseconds. `wake` is one atomic operation while
/// the thread is awake, a system call while it sleeps.
class progress_thread {
 public:
  /// Throws usage_error if no thread can be started.
  progress_thread()
      : thread_(start_thread("the engine", "set run.progress = progress::by_caller",
                             [this] { run(); })) {}
  progress_thread(const progress_thread&) = delete;
  progress_thread& operator=(const progress_thread&) = delete;
  ~progress_thread() {
    leaving_.store(true);
    wake();
    thread_.join();
  }

  /// Returns the thread of this process, which lives for as long as anybody holds it.
  static std::shared_ptr<progress_thread> of_this_process() {
    static std::mutex one_at_a_time;
    static std::weak_ptr<progress_thread> known;
    const std::scoped_lock lock(one_at_a_time);
    std::shared_ptr<progress_thread> its = known.lock();
    if (!its) {
      its = std::make_shared<progress_thread>();
      known = its;
    }
    return its;
  }

  void add(progress_loop& fresh) {
    const change mine(*this);
    fresh.begun = false;
    fresh.next = loops_;
    loops_ = &fresh;
    look_again();
  }
  /// Removes a loop. After the call the thread does not touch it any more.
  void remove(const progress_loop& gone) {
    const change mine(*this);
    progress_loop** its = &loops_;
    while (*its != &gone) {
      its = &(*its)->next;
    }
    *its = gone.next;
  }

  /// Called after something has been posted to one of the loops.
  [[gnu::noinline]] void wake() {
    if (asleep_.exchange(false)) {
      const std::scoped_lock lock(sleep_);
      woken_.notify_one();
    }
  }

  /// Says, while it lives, that a caller waits for what the thread moves: the thread wakes up, and
  /// takes only short naps. Does nothing if there is no thread.
  class waiter {
   public:
    explicit waiter(progress_thread* its) : its_(its) {
      count(1);
      if (its_ != nullptr) {
        its_->look_again();
      }
    }
    waiter(const waiter&) = delete;
    waiter& operator=(const waiter&) = delete;
    ~waiter() { count(-1); }

   private:
    void count(int more) {
      if (its_ != nullptr) {
        its_->waiters_.fetch_add(more, std::memory_order_relaxed);
      }
    }
    progress_thread* its_;
  };

  /// Rounds so far in which something moved.
  std::uint64_t moves() const { return moves_.load(); }
  /// Sleeps until `moves()` differs from `seen`, for `nap` seconds at most.
  void wait_for_more(std::uint64_t seen, seconds nap) {
    std::unique_lock lock(sleep_);
    waiting_.fetch_add(1);
    moved_.wait_for(lock, std::chrono::duration<double>(nap),
                    [this, seen] { return moves_.load() != seen; });
    waiting_.fetch_sub(1);
  }

 private:
  /// Idle polls in a row before the thread sleeps.
  static constexpr std::size_t looks_of(urgency who) { return who == urgency::unhurried ? 4 : 64; }
  static constexpr seconds an_hour = 3600;  // the nap where there is no loop

  /// While it lives, the list of loops may be changed, and no loop is driven.
  class change {
   public:
    explicit change(progress_thread& its) : its_(&its) {
      its.changes_.fetch_add(1);
      its.loops_mutex_.lock();
    }
    change(const change&) = delete;
    change& operator=(const change&) = delete;
    ~change() {
      its_->loops_mutex_.unlock();
      its_->changes_.fetch_sub(1);
    }

   private:
    progress_thread* its_;
  };

  /// Asks the system for short time slices. Where models keep every core busy, a thread that wakes
  /// up waits until another's slice ends. This takes milliseconds, too long for each message of an
  /// answer. Since Linux 6.12 a thread with shorter slices runs sooner, while its share of the core
  /// stays the same. On other systems this does nothing.
  static void ask_for_short_slices() {
    struct {  // the system's sched_attr, which not every C library declares
      std::uint32_t size;
      std::uint32_t policy;
      std::uint64_t flags;
      std::int32_t nice;
      std::uint32_t priority;
      std::uint64_t slice;  // in nanoseconds
      std::uint64_t deadline;
      std::uint64_t period;
    } mine{};
    constexpr std::uint32_t unless_said_otherwise = 0;  // SCHED_OTHER, a thread's default policy
    if (::syscall(SYS_sched_getattr, 0, &mine, sizeof(mine), 0) == 0 &&
        mine.policy == unless_said_otherwise) {
      mine.slice = 100'000;                       // the shortest that Linux allows
      ::syscall(SYS_sched_setattr, 0, &mine, 0);  // if it is refused, answers come later
    }
  }

  /// Has the thread poll again before it sleeps, and wakes it if it sleeps.
  void look_again() {
    has_joined_.store(true);
    wake();
  }

  void run() {
    ask_for_short_slices();
    std::size_t idle = 0;
    while (!leaving_.load()) {
      while (changes_.load() != 0) {
        std::this_thread::yield();  // a mutex is not fair to those who wait for it
      }
      const seconds nap = round(idle);
      if (nap > 0) {
        sleep(nap);
      }
    }
  }

  /// Drives every loop once. Returns for how long to sleep now.
  seconds round(std::size_t& idle) {
    const std::scoped_lock lock(loops_mutex_);
    bool any = false;
    for (progress_loop* each = loops_; each != nullptr; each = each->next) {
      if (!std::exchange(each->begun, true)) {
        each->begin(each->self);
      }
      any |= each->move(each->self);
    }
    if (any) {
      idle = 0;
      tell();
      return 0;
    }
    const urgency who =
        waiters_.load(std::memory_order_relaxed) != 0 ? urgency::waited_for : urgency::unhurried;
    const std::size_t looks = looks_of(who);
    const std::size_t polls = idle < looks ? idle : idle - looks + naps_from;
    seconds nap = an_hour;
    for (const progress_loop* each = loops_; each != nullptr; each = each->next) {
      nap = std::min(nap, each->idle(each->self, polls, who));
    }
    ++idle;
    return nap;
  }

  void tell() {
    moves_.fetch_add(1);
    if (waiting_.load() != 0) {
      const std::scoped_lock lock(sleep_);
      moved_.notify_all();
    }
  }

  void sleep(seconds nap) {
    // What was posted before is seen below; whoever posts later wakes the thread.
    asleep_.exchange(true);
    if (!leaving_.load() && !has_joined_.exchange(false) && !has_work()) {
      std::unique_lock lock(sleep_);
      woken_.wait_for(lock, std::chrono::duration<double>(nap), [this] { return !asleep_.load(); });
    }
    asleep_.store(false);
  }
  bool has_work() {
    const std::scoped_lock lock(loops_mutex_);
    const progress_loop* busy = loops_;
    while (busy != nullptr && !busy->has_work(busy->self)) {
      busy = busy->next;
    }
    return busy != nullptr;
  }

  std::mutex loops_mutex_;
  progress_loop* loops_ = nullptr;  // the head of the list
  std::atomic<int> changes_{0};

  std::mutex sleep_;
  std::condition_variable woken_;
  std::condition_variable moved_;
  std::atomic<bool> asleep_{false};
  std::atomic<bool> leaving_{false};
  std::atomic<bool> has_joined_{false};  // since the last sleep: a new loop or waiting caller
  std::atomic<int> waiting_{0};          // callers that sleep until something moves
  std::atomic<int> waiters_{0};
  std::atomic<std::uint64_t> moves_{0};
  std::thread thread_;
};

}  // namespace tutti
