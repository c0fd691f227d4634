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

#include "tutti/base/start_thread.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/transport.hpp"

namespace tutti {

/// A rank's loop, as a thread that moves several of them sees it. It stays where it is while the
/// thread has it.
struct progress_loop {
  void* self;
  bool (*move)(void*);                           ///< a moment as its owner: whether anything moved
  bool (*has_work)(void*);                       ///< something has been posted since
  seconds (*idle)(void*, std::size_t, urgency);  ///< as its transport's
  progress_loop* next = nullptr;                 ///< the thread's
};

/// A thread that moves communication on while the model computes: the engines of one process share
/// it. It looks often while something moves and somebody waits. Soon after the last movement, and
/// while the model computes at once, it sleeps between two looks, for as long as the transports
/// allow, until something is posted: the model wants the core.
///
/// Cost where nothing happens: a look every 6 milliseconds. `wake` is one atomic operation while
/// the thread is awake, a system call while it sleeps.
class progress_thread {
 public:
  /// Throws usage_error where there is no thread for it.
  progress_thread()
      : thread_(start_thread("communication beside the model", "run.progress = progress::by_caller",
                             [this] { run(); })) {}
  progress_thread(const progress_thread&) = delete;
  progress_thread& operator=(const progress_thread&) = delete;
  ~progress_thread() {
    leaving_.store(true);
    wake();
    thread_.join();
  }

  /// The one of this process, which lives as long as somebody holds it.
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
    fresh.next = loops_;
    loops_ = &fresh;
    look_again();
  }
  /// Afterwards the thread is not in that loop, and never comes back to it.
  void remove(const progress_loop& gone) {
    const change mine(*this);
    progress_loop** its = &loops_;
    while (*its != &gone) {
      its = &(*its)->next;
    }
    *its = gone.next;
  }

  /// Something has been posted to one of the loops.
  [[gnu::noinline]] void wake() {
    if (asleep_.exchange(false)) {
      const std::scoped_lock lock(sleep_);
      woken_.notify_one();
    }
  }

  /// While this lives somebody waits for what the thread moves: it ends its nap, and takes short
  /// ones. Without a thread this does nothing.
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

  /// Rounds in which something moved.
  std::uint64_t moves() const { return moves_.load(); }
  /// Sleeps until more has moved than `seen`, for `nap` seconds at most.
  void wait_for_more(std::uint64_t seen, seconds nap) {
    std::unique_lock lock(sleep_);
    waiting_.fetch_add(1);
    moved_.wait_for(lock, std::chrono::duration<double>(nap),
                    [this, seen] { return moves_.load() != seen; });
    waiting_.fetch_sub(1);
  }

 private:
  /// In a row that bring nothing, before it sleeps.
  static constexpr std::size_t looks_of(urgency who) { return who == urgency::unhurried ? 4 : 64; }
  static constexpr seconds an_hour = 3600;  // nobody is here

  /// Nobody moves any loop meanwhile.
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

  /// Where models keep every core busy, a thread that wakes waits until somebody's slice is over,
  /// milliseconds: too long for each message of an answer. Who asks for short slices comes first,
  /// as Linux has it since 6.12; its share of the core stays. Elsewhere it asks for nothing.
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
    constexpr std::uint32_t unless_said_otherwise = 0;  // a thread's policy
    if (::syscall(SYS_sched_getattr, 0, &mine, sizeof(mine), 0) == 0 &&
        mine.policy == unless_said_otherwise) {
      mine.slice = 100'000;                       // the shortest that there is
      ::syscall(SYS_sched_setattr, 0, &mine, 0);  // where it is refused, answers come later
    }
  }

  /// Before it sleeps, or at once where it does.
  void look_again() {
    has_joined_.store(true);
    wake();
  }

  void run() {
    ask_for_short_slices();
    std::size_t idle = 0;
    while (!leaving_.load()) {
      while (changes_.load() != 0) {
        std::this_thread::yield();  // a mutex is not fair to whoever waits for it
      }
      const seconds nap = round(idle);
      if (nap > 0) {
        sleep(nap);
      }
    }
  }

  /// Every loop once; answers for how long to sleep now.
  seconds round(std::size_t& idle) {
    const std::scoped_lock lock(loops_mutex_);
    bool any = false;
    for (const progress_loop* each = loops_; each != nullptr; each = each->next) {
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
    asleep_.exchange(true);  // whoever has posted before it is seen below, whoever does later wakes
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
  progress_loop* loops_ = nullptr;  // the first
  std::atomic<int> changes_{0};

  std::mutex sleep_;
  std::condition_variable woken_;
  std::condition_variable moved_;
  std::atomic<bool> asleep_{false};
  std::atomic<bool> leaving_{false};
  std::atomic<bool> has_joined_{false};  // somebody has, or waits, since the last round
  std::atomic<int> waiting_{0};          // asleep until something moves
  std::atomic<int> waiters_{0};
  std::atomic<std::uint64_t> moves_{0};
  std::thread thread_;
};

}  // namespace tutti
