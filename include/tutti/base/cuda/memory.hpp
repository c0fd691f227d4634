#pragma once

#include <cstddef>
#include <cstring>
#include <cuda_runtime_api.h>
#include <span>
#include <type_traits>
#include <utility>

#include "tutti/base/cuda/error.hpp"

namespace tutti::cuda {

namespace detail {

struct on_a_device {
  static void* take(std::size_t bytes) {
    void* made = nullptr;
    check(cudaMalloc(&made, bytes));
    return made;
  }
  static void give_back(void* memory) { ignore(cudaFree(memory)); }
};

struct pinned {
  static void* take(std::size_t bytes) {
    void* made = nullptr;
    check(cudaMallocHost(&made, bytes));
    std::memset(made, 0, bytes);
    return made;
  }
  static void give_back(void* memory) { ignore(cudaFreeHost(memory)); }
};

/// Owns elements in memory of one of the two places above.
template <class T, class Place>
class allocation {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  allocation() = default;
  explicit allocation(std::size_t elements)
      : data_(elements == 0 ? nullptr : static_cast<T*>(Place::take(elements * sizeof(T)))),
        size_(elements) {}
  allocation(const allocation&) = delete;
  allocation& operator=(const allocation&) = delete;
  allocation(allocation&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  allocation& operator=(allocation&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~allocation() { Place::give_back(data_); }

  T* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::span<T> span() const { return {data_, size_}; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace detail

/// Memory on the device that is current when it is made, for kernels and copies only. Its contents
/// are undefined until written. Cost: making and freeing a buffer wait for the whole device, so
/// they are for before and after training, not for a step.
template <class T>
using buffer = detail::allocation<T, detail::on_a_device>;

/// Pinned host memory, which the device reads and writes without staging. It is zeroed.
template <class T>
using pinned_buffer = detail::allocation<T, detail::pinned>;

}  // namespace tutti::cuda
