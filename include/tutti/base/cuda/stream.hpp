#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <memory>
#include <span>
#include <utility>

#include "tutti/base/cuda/error.hpp"
#include "tutti/base/cuda/memory.hpp"
#include "tutti/base/cuda/stream_workspace.hpp"
#include "tutti/base/pool.hpp"
#include "tutti/base/queue.hpp"
#if defined(__CUDACC__)
#include "tutti/base/cuda/loops.cuh"
#endif

namespace tutti::cuda {

/// A stream's priority, which matters where the device has more work than it can do at once.
enum class priority { usual, urgent };

namespace detail {

/// The pool of one device's events. They are never destroyed, because they may outlive their
/// stream. The device frees them when the process ends.
inline pool<cudaEvent_t>& events_of(int device) {
  static std::array<std::atomic<pool<cudaEvent_t>*>, 64> all{};
  auto& place = all.at(static_cast<std::size_t>(device));
  pool<cudaEvent_t>* found = place.load(std::memory_order_acquire);
  if (found == nullptr) {
    auto fresh = std::make_unique<pool<cudaEvent_t>>();
    if (place.compare_exchange_strong(found, fresh.get(), std::memory_order_acq_rel)) {
      found = fresh.release();
    }
  }
  return *found;
}

template <class>
inline constexpr bool never = false;

/// The device loops over a functor. They are defined in base/cuda/loops.cuh, which only compilers
/// for devices read.
template <class F>
struct loops;

struct nowhere {};  // the result of `stream::run`, so that a stream is no host_queue

}  // namespace detail

/// A CUDA stream as a queue: work executes in order on a device, and only `synchronize` waits for
/// it.
///
/// If a kernel that selects finds a NaN, the next `synchronize` throws usage_error, and so does
/// every later one, because what the kernel selected is wrong, and all that was computed from it.
/// One thread at a time may enqueue kernels; any thread may call `record`, `wait`, `copy`, `clear`
/// and `synchronize`, whatever its current device is. Every call makes the stream's device current
/// meanwhile: a device's default stream has the same handle on every device. Cost: events are
/// reused; after the first steps none is made.
class stream {
 public:
  /// A point in a stream's order of work. It may outlive the stream.
  class event {
   public:
    event() = default;

   private:
    friend stream;
    event(pool<cudaEvent_t>::handle handle, std::uint64_t of)
        : handle_(std::move(handle)), of_(of) {}

    pool<cudaEvent_t>::handle handle_{};
    std::uint64_t of_ = 0;
  };

  /// Makes a stream on the current device. It does not synchronise with the default stream.
  stream() : stream(priority::usual) {}
  explicit stream(priority wanted) : stream(created(wanted)) {
    owned_ = true;
    settle();
  }
  stream(std::nullptr_t) = delete;
  stream(const stream&) = delete;
  stream& operator=(const stream&) = delete;
  stream(stream&& other) noexcept { swap(other); }
  stream& operator=(stream&& other) noexcept {
    swap(other);
    return *this;
  }
  /// Enqueued work is still executed, but what it refuses is not reported.
  ~stream() {
    if (owned_) {
      ignore(cudaStreamDestroy(handle_));
    }
  }

  /// Wraps a stream of the user's on the current device. The user still owns it, and it must
  /// outlive the result. Cost: as much memory as a stream made here, so wrap it once and keep the
  /// result.
  static stream from_native_handle(cudaStream_t borrowed) {
    stream made(borrowed);
    made.settle();
    return made;
  }
  /// Releases ownership of the stream, which the caller must destroy.
  cudaStream_t release() {
    owned_ = false;
    return handle_;
  }
  cudaStream_t native_handle() const { return handle_; }
  int device() const { return device_; }
  /// Makes the stream's device the calling thread's current one, for a thread that works mostly
  /// for this stream. Otherwise each call makes it current and then the one before, of which CUDA
  /// makes a context, with some hundred MiB of that device's memory.
  void make_device_current() const noexcept { ignore(cudaSetDevice(device_)); }

  event record() {
    const on_device here(device_);
    auto handle = detail::events_of(device_).take([] {
      cudaEvent_t made = nullptr;
      check(cudaEventCreateWithFlags(&made, cudaEventDisableTiming));
      return made;
    });
    check(cudaEventRecord(*handle, handle_));
    return event(std::move(handle), number_);
  }

  void wait(const event& until) {
    if (until.handle_ && until.of_ != number_) {
      const on_device here(device_);
      check(cudaStreamWaitEvent(handle_, *until.handle_, 0));
    }
  }

  /// Returns whether all work before `until` is done, without blocking. Throws if the device has
  /// failed.
  static bool passed(const event& until) {
    if (!until.handle_) {
      return true;
    }
    const cudaError_t answer = cudaEventQuery(*until.handle_);
    if (answer == cudaErrorNotReady) {
      ignore(answer);
      return false;
    }
    check(answer);
    return true;
  }

  /// Waits for all enqueued work. Throws what the stream's kernels have refused so far.
  void synchronize() {
    const on_device here(device_);
    workspace_->look(handle_);
    check(cudaStreamSynchronize(handle_));
    workspace_->judge();
  }

  /// Enqueues a copy between any two addresses. Pageable host memory is allowed, but CUDA then
  /// stages the copy and may block.
  void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes != 0) {
      const on_device here(device_);
      check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, handle_));
    }
  }
  void clear(void* at, std::size_t bytes) {
    if (bytes != 0) {
      const on_device here(device_);
      check(cudaMemsetAsync(at, 0, bytes, handle_));
    }
  }

  /// Returns whether streams of this device can work on the memory: this device's, pinned or
  /// managed memory. Plain host memory does not count, even if a device could access it, and
  /// neither does another device's.
  bool reaches(const void* memory) const {
    const on_device here(device_);
    cudaPointerAttributes found{};
    check(cudaPointerGetAttributes(&found, memory));
    const bool is_anothers = found.type == cudaMemoryTypeDevice && found.device != device_;
    return found.type != cudaMemoryTypeUnregistered && found.devicePointer == memory &&
           !is_anothers;
  }

  /// Returns memory of this stream's device, with undefined contents.
  template <class T>
  buffer<T> allocate(std::size_t elements) {
    const on_device here(device_);
    return buffer<T>(elements);
  }
  /// Returns pinned host memory, on which this stream can work, too.
  template <class T>
  pinned_buffer<T> allocate_pinned(std::size_t elements) {
    const on_device here(device_);
    return pinned_buffer<T>(elements);
  }

  /// The workspace of this stream's kernels.
  stream_workspace& workspace() { return *workspace_; }

  /// Calls `f(i)` on the device for every i in [0, n), in any order. Captures must be device
  /// addresses and values.
  template <class F>
  void for_each(std::size_t n, F f) {
    if constexpr (requires { sizeof(detail::loops<F>); }) {
      const on_device here(device_);
      detail::loops<F>::each(handle_, n, f);
    } else {
      static_assert(detail::never<F>,
                    "tutti: this functor must be compiled for a device, and this file is compiled "
                    "for the host alone. Fix: compile it with nvcc, or call a function of "
                    "tutti::kernels, which are compiled already.");
    }
  }

  /// Sets `*result` to the sum of `f(x)` over `input`, added in double. The bits are equal in every
  /// run on devices of one kind, and equal to a host queue's up to the rounding of doubles.
  template <class T, class F>
  void transform_reduce(std::span<const float> input, T* result, F f) {
    if constexpr (requires { sizeof(detail::loops<F>); }) {
      const on_device here(device_);
      detail::loops<F>::sum(handle_, workspace(), input, result, f);
    } else {
      for_each(input.size(), f);  // does not compile either, and says why
    }
  }

  /// Does not compile: a stream's memory is the device's, and host code cannot reach it.
  template <class F>
  detail::nowhere run(F) {
    static_assert(detail::never<F>,
                  "tutti: this policy's work is host code, but the queue is a cuda::stream, whose "
                  "memory the host cannot reach. Fix: write it with queue.for_each or a function "
                  "of tutti::kernels, or train over transport::in_process.");
    return {};
  }

 private:
  // When a constructor has delegated to this one, the destructor runs even if `settle` throws, so
  // that the handle is not lost.
  explicit stream(cudaStream_t handle) noexcept : handle_(handle) {}

  static cudaStream_t created(priority wanted) {
    int least = 0;
    int greatest = 0;
    check(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    cudaStream_t made = nullptr;
    check(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking,
                                       wanted == priority::urgent ? greatest : least));
    return made;
  }

  void settle() {
    check(cudaGetDevice(&device_));
    workspace_ = std::make_unique<stream_workspace>(handle_);
  }

  void swap(stream& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(owned_, other.owned_);
    std::swap(device_, other.device_);
    std::swap(number_, other.number_);
    std::swap(workspace_, other.workspace_);
  }

  static std::uint64_t next_number() {
    static std::atomic<std::uint64_t> made{0};
    return made.fetch_add(1, std::memory_order_relaxed) + 1;
  }

  cudaStream_t handle_ = nullptr;
  bool owned_ = false;
  int device_ = 0;
  std::uint64_t number_ = next_number();  // CUDA reuses handles, and events outlive streams
  std::unique_ptr<stream_workspace> workspace_{};
};
static_assert(device_queue<stream> && !host_queue<stream>);

}  // namespace tutti::cuda
