#pragma once

#include <cstddef>
#include <cuda_runtime_api.h>
#include <span>
#include <type_traits>
#include <utility>

#include "tutti/base/cuda/error.hpp"

namespace tutti::cuda {

/// Memory on the device that is current when it is made; its elements are for kernels and copies.
/// Undefined until written. Cost: making one and giving it back wait for the whole device, so it is
/// for before and after training, not for a step.
template <class T>
class buffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  buffer() = default;
  explicit buffer(std::size_t elements) : size_(elements) {
    if (elements != 0) {
      void* made = nullptr;
      check(cudaMalloc(&made, elements * sizeof(T)));
      data_ = static_cast<T*>(made);
    }
  }
  buffer(const buffer&) = delete;
  buffer& operator=(const buffer&) = delete;
  buffer(buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  buffer& operator=(buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~buffer() { ignore(cudaFree(data_)); }

  /// Device addresses.
  T* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::span<T> span() const { return {data_, size_}; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Host memory that the device reads and writes without staging, zeroed.
template <class T>
class pinned_buffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  pinned_buffer() = default;
  explicit pinned_buffer(std::size_t elements) : size_(elements) {
    if (elements != 0) {
      void* made = nullptr;
      check(cudaMallocHost(&made, elements * sizeof(T)));
      data_ = static_cast<T*>(made);
      for (T& each : span()) {
        each = T{};
      }
    }
  }
  pinned_buffer(const pinned_buffer&) = delete;
  pinned_buffer& operator=(const pinned_buffer&) = delete;
  pinned_buffer(pinned_buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  pinned_buffer& operator=(pinned_buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~pinned_buffer() { ignore(cudaFreeHost(data_)); }

  T* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::span<T> span() const { return {data_, size_}; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace tutti::cuda
