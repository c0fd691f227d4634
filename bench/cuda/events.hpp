#pragma once

#include <cstddef>

#include "kernels/in_turn.hpp"
#include "tutti/base/cuda/error.hpp"
#include "tutti/base/cuda/stream.hpp"

namespace bench {

/// Times work on a stream by the device's own clock.
class stopwatch {
 public:
  explicit stopwatch(tutti::cuda::stream& queue) : queue_(&queue) {
    tutti::cuda::check(cudaEventCreate(&begin_));
    tutti::cuda::check(cudaEventCreate(&end_));
  }
  stopwatch(const stopwatch&) = delete;
  stopwatch& operator=(const stopwatch&) = delete;
  ~stopwatch() {
    tutti::cuda::ignore(cudaEventDestroy(begin_));
    tutti::cuda::ignore(cudaEventDestroy(end_));
  }

  /// Returns the seconds of one call, averaged over so many calls in a row.
  double operator()(const contender& which, std::size_t calls) const {
    tutti::cuda::check(cudaEventRecord(begin_, queue_->native_handle()));
    for (std::size_t call = 0; call < calls; ++call) {
      which.call();
    }
    tutti::cuda::check(cudaEventRecord(end_, queue_->native_handle()));
    queue_->synchronize();
    float milliseconds = 0;
    tutti::cuda::check(cudaEventElapsedTime(&milliseconds, begin_, end_));
    return 1e-3 * static_cast<double>(milliseconds) / static_cast<double>(calls);
  }

 private:
  tutti::cuda::stream* queue_;
  cudaEvent_t begin_{};
  cudaEvent_t end_{};
};

}  // namespace bench
