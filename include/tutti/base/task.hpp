#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <coroutine>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <new>
#include <thread>
#include <utility>

#include "tutti/base/ring_buffer.hpp"

namespace tutti {

/// A first-in, first-out queue of coroutines that are ready to resume. One thread at a time owns
/// it.
///
/// A coroutine that an await has suspended is always resumed from this queue and never by another
/// coroutine, so that the stack stays flat however many awaits complete at once.
class run_queue {
 public:
  run_queue() = default;
  run_queue(const run_queue&) = delete;
  run_queue& operator=(const run_queue&) = delete;

  void push(std::coroutine_handle<> ready) { ready_.push(ready); }

  bool empty() const { return ready_.empty(); }

  /// Returns true on the thread that is inside `drain`: a coroutine is running there and must not
  /// drain again.
  bool draining() const {
    return drainer_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }

  /// Resumes coroutines until none is left and returns how many it has resumed.
  std::size_t drain() {
    if (empty()) {
      return 0;
    }
    drainer_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    std::size_t resumed = 0;
    for (; !empty(); ++resumed) {
      ready_.pop().resume();
    }
    drainer_.store(std::thread::id(), std::memory_order_relaxed);
    return resumed;
  }

 private:
  ring_buffer<std::coroutine_handle<>> ready_{64};
  std::atomic<std::thread::id> drainer_{};  // atomic, because other threads call `draining`
};

namespace detail {

/// Not inlined, because every coroutine has a call of it for each of its awaits.
[[noreturn, gnu::cold, gnu::noinline]] inline void rethrow(const std::exception_ptr& failure) {
  std::rethrow_exception(failure);
}

struct free_frame {
  free_frame* next;
};

/// A thread's pool of coroutine frames, by size: no frame is allocated after the first step. If one
/// thread takes frames that another gives back, as where the backward pass has a thread of its own,
/// each step allocates, and the other thread keeps at most `most_kept` bytes of frames that it
/// never uses. The destructor does nothing, so that coroutines that end after the thread's own
/// variables, such as those of an engine with static storage, can still use the pool. It keeps no
/// frames from then on.
class frame_pool {
 public:
  static constexpr std::size_t most_kept = std::size_t{16} << 20;

  void* take(std::size_t bytes) {
    const std::size_t slot = slot_of(bytes);
    if (free_[slot] != nullptr) {
      kept_ -= room_of(slot, bytes);
      return std::exchange(free_[slot], free_[slot]->next);
    }
    return ::operator new(room_of(slot, bytes));
  }

  void give(void* frame, std::size_t bytes) {
    const std::size_t slot = slot_of(bytes);
    const std::size_t room = room_of(slot, bytes);
    if (kept_ + room <= most_kept && (now_ == life::kept || begins_to_keep())) {
      kept_ += room;
      free_[slot] = ::new (frame) free_frame{free_[slot]};
    } else {
      ::operator delete(frame);
    }
  }

  /// Bytes of unused frames in the pool.
  std::size_t kept() const { return kept_; }

 private:
  enum class life { unused, kept, over };
  /// Frees the pool's frames when the thread ends.
  struct end {
    frame_pool* its;
    ~end() { its->let_go(); }
  };

  [[gnu::cold]] bool begins_to_keep() {
    if (now_ == life::over) {
      return false;
    }
    static thread_local end at_the_end{this};
    now_ = life::kept;
    return true;
  }

  void let_go() {
    now_ = life::over;
    for (free_frame*& each : free_) {
      while (each != nullptr) {
        ::operator delete(std::exchange(each, each->next));
      }
    }
  }

  static constexpr std::size_t granule = 64;
  static constexpr std::size_t fine = 256;  // a slot per granule up to 16 KiB, then per doubling

  static std::size_t slot_of(std::size_t bytes) {
    return bytes / granule < fine
               ? bytes / granule
               : fine + static_cast<std::size_t>(std::bit_width(bytes / granule / fine));
  }

  static std::size_t room_of(std::size_t slot, std::size_t bytes) {
    return slot < fine ? (slot + 1) * granule : std::bit_ceil(bytes + 1);
  }

  std::array<free_frame*, fine + 40> free_{};
  std::size_t kept_ = 0;
  life now_ = life::unused;
};

inline constinit thread_local frame_pool frames;

}  // namespace detail

/// A lazy coroutine: it begins when it is awaited, or when `start` is called to run it beside
/// others and await it later.
///
/// An exception that leaves it is thrown where it is awaited. A task must not be destroyed while
/// one of its operations is in flight.
class [[nodiscard]] task {
 public:
  struct promise_type;
  using handle = std::coroutine_handle<promise_type>;

  struct promise_type {
    run_queue* queue = nullptr;
    std::coroutine_handle<> continuation = nullptr;
    std::exception_ptr failure = nullptr;

    static void* operator new(std::size_t bytes) { return detail::frames.take(bytes); }
    static void operator delete(void* frame, std::size_t bytes) {
      detail::frames.give(frame, bytes);
    }

    task get_return_object() { return task(handle::from_promise(*this)); }
    std::suspend_always initial_suspend() const noexcept { return {}; }
    auto final_suspend() const noexcept {
      struct hand_over {
        bool await_ready() const noexcept { return false; }
        void await_suspend(handle done) const noexcept {
          if (done.promise().continuation) {
            done.promise().queue->push(done.promise().continuation);
          }
        }
        void await_resume() const noexcept {}
      };
      return hand_over{};
    }
    void return_void() const noexcept {}
    [[gnu::cold, gnu::noinline]] void unhandled_exception() { failure = std::current_exception(); }
  };

  task() = default;
  explicit task(handle coroutine) : coroutine_(coroutine) {}
  task(task&& other) noexcept : coroutine_(std::exchange(other.coroutine_, nullptr)) {}
  // Returns void, because nvcc would take a returned reference to a task for a discarded task.
  void operator=(task&& other) noexcept {
    task old(std::exchange(coroutine_, std::exchange(other.coroutine_, nullptr)));
  }
  task(const task&) = delete;
  task& operator=(const task&) = delete;
  ~task() {
    if (coroutine_) {
      coroutine_.destroy();
    }
  }

  /// Runs the coroutine until it first suspends. Later resumptions come from `queue`.
  void start(run_queue& queue) {
    coroutine_.promise().queue = &queue;
    coroutine_.resume();
  }

  bool done() const { return !coroutine_ || coroutine_.done(); }

  /// Rethrows what the finished task threw.
  void result() const {
    if (coroutine_ && coroutine_.promise().failure) {
      detail::rethrow(coroutine_.promise().failure);
    }
  }

  /// Awaiting a task that has not begun runs it immediately. A task that completes without
  /// suspending does not suspend its parent either.
  class awaiter {
   public:
    explicit awaiter(handle child) : child_(child) {}

    bool await_ready() const noexcept { return !child_ || child_.done(); }
    template <class Promise>
    bool await_suspend(std::coroutine_handle<Promise> parent) const {
      auto& promise = child_.promise();
      if (promise.queue == nullptr) {
        promise.queue = parent.promise().queue;
        child_.resume();
        if (child_.done()) {
          return false;
        }
      }
      promise.continuation = parent;
      return true;
    }
    void await_resume() const {
      if (child_ && child_.promise().failure) {
        detail::rethrow(child_.promise().failure);
      }
    }

   private:
    handle child_;
  };
  awaiter operator co_await() const noexcept { return awaiter(coroutine_); }

 private:
  handle coroutine_ = nullptr;
};

}  // namespace tutti
