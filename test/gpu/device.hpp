#pragma once

#include <cstddef>
#include <gtest/gtest.h>
#include <span>
#include <vector>

#include "tutti/base/cuda/error.hpp"
#include "tutti/base/cuda/memory.hpp"
#include "tutti/base/cuda/stream.hpp"

namespace tutti::test {

/// Tests that need a GPU. Without one each is skipped with a line that says so.
class needs_a_device : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::devices() == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
  }
};

/// Values in a device's memory, `skipped` elements after an aligned address.
template <class T>
class on_gpu {
 public:
  on_gpu(cuda::stream& queue, const std::vector<T>& values, std::size_t skipped = 0)
      : queue_(&queue), skipped_(skipped), memory_(values.size() + skipped) {
    queue.copy(memory_.data() + skipped, values.data(), values.size() * sizeof(T));
    queue.synchronize();
  }
  on_gpu(cuda::stream& queue, std::size_t elements)
      : on_gpu(queue, std::vector<T>(elements, T{99})) {}

  T* data() const { return memory_.data() + skipped_; }
  std::span<T> span() const { return {data(), memory_.size() - skipped_}; }
  std::span<const T> input() const { return span(); }
  std::vector<T> read() const {
    std::vector<T> values(span().size());
    queue_->copy(values.data(), data(), values.size() * sizeof(T));
    queue_->synchronize();
    return values;
  }

 private:
  cuda::stream* queue_;
  std::size_t skipped_;
  cuda::buffer<T> memory_;
};

}  // namespace tutti::test
