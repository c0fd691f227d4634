#pragma once

#include <benchmark/benchmark.h>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "median.hpp"
#include "tutti/base/cuda/error.hpp"
#include "tutti/base/cuda/stream.hpp"

namespace bench {

/// Work that is enqueued on a stream, and the bytes that it cannot do without.
struct enqueued {
  std::function<void(tutti::cuda::stream&)> enqueue{};
  double bytes{};
};

/// Another way to the same result.
struct peer {
  std::string name{};
  enqueued work{};
};

/// Times work on a stream by the device's own clock.
class stopwatch {
 public:
  stopwatch() {
    tutti::cuda::check(cudaEventCreate(&begin_));
    tutti::cuda::check(cudaEventCreate(&end_));
  }
  stopwatch(const stopwatch&) = delete;
  stopwatch& operator=(const stopwatch&) = delete;
  ~stopwatch() {
    tutti::cuda::ignore(cudaEventDestroy(begin_));
    tutti::cuda::ignore(cudaEventDestroy(end_));
  }

  /// Seconds of one of `times` in a row.
  double take(tutti::cuda::stream& queue, const enqueued& work, int times) const {
    tutti::cuda::check(cudaEventRecord(begin_, queue.native_handle()));
    for (int i = 0; i < times; ++i) {
      work.enqueue(queue);
    }
    tutti::cuda::check(cudaEventRecord(end_, queue.native_handle()));
    queue.synchronize();
    float milliseconds = 0;
    tutti::cuda::check(cudaEventElapsedTime(&milliseconds, begin_, end_));
    return 1e-3 * static_cast<double>(milliseconds) / times;
  }

 private:
  cudaEvent_t begin_{};
  cudaEvent_t end_{};
};

/// Batches of the kernel, a copy of the device's memory and the peers in turn. Counters: GB_s of
/// the bytes that the kernel cannot do without, copy_GB_s, of_copy, and of_PEER, the kernel's time
/// over the peer's.
inline void compare(benchmark::State& state, const enqueued& kernel, const enqueued& copy,
                    const std::vector<peer>& peers) {
  constexpr int in_a_row = 20;
  tutti::cuda::stream queue;
  const stopwatch watch;
  const auto warm = [&](const enqueued& work) { watch.take(queue, work, 2); };
  warm(kernel);
  warm(copy);
  std::vector<double> kernels;
  std::vector<double> copies;
  std::vector<std::vector<double>> others(peers.size());
  for (auto _ : state) {
    kernels.push_back(watch.take(queue, kernel, in_a_row));
    copies.push_back(watch.take(queue, copy, in_a_row));
    for (std::size_t i = 0; i < peers.size(); ++i) {
      others[i].push_back(watch.take(queue, peers[i].work, in_a_row));
    }
    state.SetIterationTime(kernels.back());
  }
  const double rate = kernel.bytes / median(kernels);
  const double limit = copy.bytes / median(copies);
  state.counters["GB_s"] = 1e-9 * rate;
  state.counters["copy_GB_s"] = 1e-9 * limit;
  state.counters["of_copy"] = rate / limit;
  for (std::size_t i = 0; i < peers.size(); ++i) {
    state.counters["of_" + peers[i].name] = median(kernels) / median(others[i]);
  }
}

}  // namespace bench
