#pragma once

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "tutti/benchmark.hpp"

namespace bench {

inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// One thread for each rank, each on a core of its own, which do the same work at the same time.
/// Between two pieces of work they sleep, so that processes beside them can be measured as well.
class team {
 public:
  /// Makes `calls` calls of the measured function on one rank.
  using work = std::function<void(int rank, std::size_t calls)>;

  explicit team(int ranks)
      : times_(static_cast<std::size_t>(ranks)), begin_(ranks + 1), end_(ranks + 1) {
    for (int rank = 0; rank < ranks; ++rank) {
      threads_.emplace_back([this, rank] { serve(rank); });
    }
  }
  team(const team&) = delete;
  team& operator=(const team&) = delete;
  ~team() {
    calls_ = 0;
    begin_.arrive_and_wait();
    for (auto& each : threads_) {
      each.join();
    }
  }

  /// Returns the seconds that the slowest rank takes for `calls` calls.
  double time(const work& each, std::size_t calls) {
    work_ = &each;
    calls_ = calls;
    begin_.arrive_and_wait();
    end_.arrive_and_wait();
    return std::ranges::max(times_);
  }

 private:
  void serve(int rank) {
    tutti::benchmark::stay_on_core(rank);
    for (;;) {
      begin_.arrive_and_wait();
      if (calls_ == 0) {
        return;
      }
      (*work_)(rank, 1);  // the thread that wakes first waits in this call and not in a timed one
      const auto begin = std::chrono::steady_clock::now();
      (*work_)(rank, calls_);
      times_[static_cast<std::size_t>(rank)] = seconds_since(begin);
      end_.arrive_and_wait();
    }
  }

  std::vector<double> times_;
  std::barrier<> begin_;
  std::barrier<> end_;
  const work* work_ = nullptr;
  std::size_t calls_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace bench
