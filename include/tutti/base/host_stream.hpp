#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/base/assert.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/start_thread.hpp"

namespace tutti {

/// A stand-in for a CUDA stream on a machine without a GPU. It executes work in order on a thread
/// of its own, each operation after a random delay, so that code which forgets to wait is caught.
/// Everything that tutti does with a CUDA stream it can do with this one.
///
/// Cost: one allocation and one wake-up per operation; it is for tests.
class host_stream : public host_loops<host_stream> {
  class progress;

 public:
  /// A point in a stream's order of work. It may outlive the stream.
  class event {
   public:
    event() = default;

   private:
    friend host_stream;
    event(std::shared_ptr<progress> of, std::uint64_t at) : of_(std::move(of)), at_(at) {}

    std::shared_ptr<progress> of_;
    std::uint64_t at_ = 0;
  };

  host_stream() : host_stream(next_seed()) {}
  /// The seed determines the delay of each operation, from none to 50 µs.
  explicit host_stream(std::uint64_t seed)
      : passed_(std::make_shared<progress>()),
        thread_(start_thread("a host_stream", "use fewer streams", [this, seed] { work(seed); })) {}
  host_stream(const host_stream&) = delete;
  host_stream& operator=(const host_stream&) = delete;
  /// Executes all work that was enqueued.
  ~host_stream() {
    {
      const std::scoped_lock lock(mutex_);
      closing_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  template <class F>
  void run(F f) {
    {
      const std::scoped_lock lock(mutex_);
      waiting_.emplace_back(std::move(f));
      ++enqueued_;
    }
    wake_.notify_one();
  }

  event record() {
    const std::scoped_lock lock(mutex_);
    return event(passed_, enqueued_);
  }

  void wait(const event& until) {
    if (until.of_ != nullptr && until.of_ != passed_) {
      run([until] { until.of_->wait(until.at_); });
    }
  }

  /// Returns whether all work before `until` is done, without blocking.
  static bool passed(const event& until) {
    return until.of_ == nullptr || until.of_->has_come(until.at_);
  }

  /// Waits for all enqueued work and throws its first exception, if there was one. Like a kernel,
  /// the work cannot throw to the host when it runs.
  void synchronize() {
    finish();
    const std::scoped_lock lock(mutex_);
    if (refused_) {
      std::rethrow_exception(refused_);
    }
  }

  /// Returns true on the thread of any host_stream.
  static bool executing() { return executing_; }

  template <class T>
  class buffer;

  /// Returns memory of this stream with undefined contents.
  template <class T>
  buffer<T> allocate(std::size_t elements);

  /// Returns whether `memory` lies in a buffer of any host_stream.
  static bool reaches(const void* memory) {
    const std::scoped_lock lock(memories_mutex_);
    const auto after = memories_.upper_bound(memory);
    return after != memories_.begin() && std::less<>()(memory, std::prev(after)->second);
  }

 private:
  void finish() {
    const event now = record();
    passed_->wait(now.at_);
  }

  /// Counts a stream's completed operations. Whoever has waited for an operation sees the effects
  /// of all those before it.
  class progress {
   public:
    void advance() {
      {
        const std::scoped_lock lock(mutex_);
        ++done_;
      }
      changed_.notify_all();
    }
    bool has_come(std::uint64_t so_far) {
      const std::scoped_lock lock(mutex_);
      return done_ >= so_far;
    }
    void wait(std::uint64_t until) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return done_ >= until; });
    }

   private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::uint64_t done_ = 0;
  };

  static std::uint64_t next_seed() {
    static std::atomic<std::uint64_t> made{0};
    return ++made;
  }

  void work(std::uint64_t seed) {
    executing_ = true;
    for (std::function<void()> next; take(next);) {
      dawdle(seed);
      try {
        next();
      } catch (...) {
        const std::scoped_lock lock(mutex_);
        refused_ = refused_ ? refused_ : std::current_exception();
      }
      passed_->advance();
    }
  }

  bool take(std::function<void()>& next) {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return closing_ || !waiting_.empty(); });
    if (waiting_.empty()) {
      return false;
    }
    next = std::move(waiting_.front());
    waiting_.pop_front();
    return true;
  }

  static void dawdle(std::uint64_t& state) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const std::uint64_t dice = state >> 58;
    if (dice < 2) {
      std::this_thread::sleep_for(std::chrono::microseconds(25 * (dice + 1)));
    } else if (dice < 16) {
      std::this_thread::yield();
    }
  }

  /// The end of each buffer of any stream, by its beginning.
  static inline std::mutex memories_mutex_;
  static inline std::map<const void*, const void*, std::less<>> memories_;
  static inline thread_local bool executing_ = false;

  std::shared_ptr<progress> passed_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> waiting_;
  std::uint64_t enqueued_ = 0;
  bool closing_ = false;
  std::exception_ptr refused_{};  // the first exception
  std::thread thread_;            // last, because it uses the members above
};
static_assert(host_queue<host_stream> && device_queue<host_stream>);

/// Memory of a stream. Until it is written, and again when it is freed, it is filled with poison:
/// all bits are set, which is a NaN in every format. Only functors that the stream executes may
/// access its elements; the host reads a copy.
template <class T>
class host_stream::buffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  buffer() = default;
  buffer(host_stream& stream, std::size_t elements) : stream_(&stream), memory_(elements) {
    poison(std::as_writable_bytes(std::span(memory_)));
    const std::scoped_lock lock(memories_mutex_);
    memories_[memory_.data()] = memory_.data() + elements;
  }
  buffer(const buffer&) = delete;
  buffer& operator=(const buffer&) = delete;
  buffer(buffer&& other) noexcept { swap(other); }
  buffer& operator=(buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~buffer() {
    if (stream_ != nullptr) {
      stream_->finish();
      poison(std::as_writable_bytes(std::span(memory_)));
      const std::scoped_lock lock(memories_mutex_);
      memories_.erase(memory_.data());
    }
  }

  std::size_t size() const { return memory_.size(); }
  bool empty() const { return memory_.empty(); }
  T* data() { return memory_.data(); }
  const T* data() const { return memory_.data(); }

  /// The device address, to enqueue work on and to send. The host must not read it.
  std::span<T> span() { return memory_; }

  /// An element, for a functor that the stream executes.
  T& operator[](std::size_t i) {
    TUTTI_ASSERT(executing(), "the host accessed a stream's memory. Fix: copy it with read_back()");
    return memory_[i];
  }

  /// Enqueues a write of `values`, which have been copied when this returns.
  void write(std::span<const T> values) {
    stream_->run([to = memory_.data(), from = std::vector<T>(values.begin(), values.end())] {
      std::copy(from.begin(), from.end(), to);
    });
  }

  /// Waits for all work enqueued so far and returns a copy.
  std::vector<T> read_back() {
    stream_->synchronize();
    return memory_;
  }

  /// Whether `value` is poison, which a read without a wait would see.
  static bool is_poison(const T& value) {
    T never_written;
    poison(std::as_writable_bytes(std::span(&never_written, 1)));
    return std::memcmp(&value, &never_written, sizeof value) == 0;
  }

 private:
  static void poison(std::span<std::byte> bytes) {
    if (!bytes.empty()) {
      std::memset(bytes.data(), 0xFF, bytes.size());
    }
  }

  void swap(buffer& other) noexcept {
    std::swap(stream_, other.stream_);
    std::swap(memory_, other.memory_);
  }

  host_stream* stream_ = nullptr;
  std::vector<T> memory_{};
};

template <class T>
host_stream::buffer<T> host_stream::allocate(std::size_t elements) {
  return buffer<T>(*this, elements);
}

}  // namespace tutti
