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
#include "tutti/base/cuda/room.hpp"
#include "tutti/base/pool.hpp"
#include "tutti/base/queue.hpp"
#if defined(__CUDACC__)
#include "tutti/base/cuda/loops.cuh"
#endif

namespace tutti::cuda {

/// What a stream's work goes before, where the device has more than it can do at once.
enum class priority { usual, urgent };

namespace detail {

/// Events of one device. They are never destroyed: they may outlive their stream, and the device
/// lets go of everything when the process ends.
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

/// A functor's loops on a device: base/cuda/loops.cuh defines them, which compilers for devices
/// read.
template <class F>
struct loops;

struct nowhere {};  // what a device's `run` answers, so that it is no host queue

}  // namespace detail

/// A CUDA stream as a queue: work in order on a device, enqueued and never waited for but in
/// `synchronize`.
///
/// Kernels that select throw usage_error at NaN from the next `synchronize`, and every one after
/// it: what they selected is wrong and so is what was made of it. One thread at a time enqueues
/// kernels; `record`, `wait`, `copy`, `clear` and `synchronize` are anybody's.
/// Cost: events are used again; after the first steps none is made.
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

  /// A stream of its own on the device that is current, beside the default stream.
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
  /// Work that was enqueued is still done; what it refuses is not heard of any more.
  ~stream() {
    if (owned_) {
      ignore(cudaStreamDestroy(handle_));
    }
  }

  /// The user's stream, of the device that is current; it stays the user's and must live longer.
  /// Cost: as much memory as a stream of one's own, so it is made once and kept.
  static stream from_native_handle(cudaStream_t borrowed) {
    stream made(borrowed);
    made.settle();
    return made;
  }
  /// Hands the stream over: it is the caller's to destroy.
  cudaStream_t release() {
    owned_ = false;
    return handle_;
  }
  cudaStream_t native_handle() const { return handle_; }
  int device() const { return device_; }

  event record() {
    auto handle = detail::events_of(device_).take([this] {
      const on_device here(device_);
      cudaEvent_t made = nullptr;
      check(cudaEventCreateWithFlags(&made, cudaEventDisableTiming));
      return made;
    });
    check(cudaEventRecord(*handle, handle_));
    return event(std::move(handle), number_);
  }

  void wait(const event& until) {
    if (until.handle_ && until.of_ != number_) {
      check(cudaStreamWaitEvent(handle_, *until.handle_, 0));
    }
  }

  /// Whether all before `until` is done; blocks nobody. Throws if the device has failed.
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

  /// Throws what the stream's kernels have refused so far.
  void synchronize() {
    room_->look(handle_);
    check(cudaStreamSynchronize(handle_));
    room_->judge();
  }

  /// Between any two places, the host's pageable memory too (then CUDA stages it, and may block).
  void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes != 0) {
      check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, handle_));
    }
  }
  void clear(void* at, std::size_t bytes) {
    if (bytes != 0) {
      check(cudaMemsetAsync(at, 0, bytes, handle_));
    }
  }

  /// Whether it is memory that streams of this device work on: a device's, pinned or managed. The
  /// host's plain memory is not, also where a device could see it.
  bool reaches(const void* memory) const {
    const on_device here(device_);
    cudaPointerAttributes found{};
    check(cudaPointerGetAttributes(&found, memory));
    return found.type != cudaMemoryTypeUnregistered && found.devicePointer == memory;
  }

  /// Undefined memory of this stream's device.
  template <class T>
  buffer<T> allocate(std::size_t elements) {
    const on_device here(device_);
    return buffer<T>(elements);
  }
  /// Memory of the host's that this stream works on too.
  template <class T>
  pinned_buffer<T> allocate_pinned(std::size_t elements) {
    const on_device here(device_);
    return pinned_buffer<T>(elements);
  }

  /// What this stream's kernels scribble on.
  stream_room& room() { return *room_; }

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

  /// `*result` becomes the sum of `f(x)` over `input`, added in double: the same bits in every run
  /// on devices of one kind, and those of a host's queue up to the rounding of doubles.
  template <class T, class F>
  void transform_reduce(std::span<const float> input, T* result, F f) {
    if constexpr (requires { sizeof(detail::loops<F>); }) {
      const on_device here(device_);
      detail::loops<F>::sum(handle_, room(), input, result, f);
    } else {
      for_each(input.size(), f);  // says what is wrong
    }
  }

  /// Never: a stream's memory is the device's, and host code cannot reach it.
  template <class F>
  detail::nowhere run(F) {
    static_assert(detail::never<F>,
                  "tutti: this policy's work is host code, but the queue is a cuda::stream, whose "
                  "memory the host cannot reach. Fix: write it with queue.for_each or a function "
                  "of tutti::kernels, or train over transport::in_process.");
    return {};
  }

 private:
  // Whoever delegates to this has a destructor from here on: what settling throws loses no handle.
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
    room_ = std::make_unique<stream_room>(handle_);
  }

  void swap(stream& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(owned_, other.owned_);
    std::swap(device_, other.device_);
    std::swap(number_, other.number_);
    std::swap(room_, other.room_);
  }

  static std::uint64_t next_number() {
    static std::atomic<std::uint64_t> made{0};
    return made.fetch_add(1, std::memory_order_relaxed) + 1;
  }

  cudaStream_t handle_ = nullptr;
  bool owned_ = false;
  int device_ = 0;
  std::uint64_t number_ = next_number();  // handles are used again, and events outlive streams
  std::unique_ptr<stream_room> room_{};
};
static_assert(device_queue<stream> && !host_queue<stream>);

}  // namespace tutti::cuda
