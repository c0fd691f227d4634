#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <thread>

#include "tutti/base/queue.hpp"
#include "tutti/base/units.hpp"

namespace compare {

/// Where a worker's kernels run: on this CPU, or, once `sleep_at` was called, on a device that is
/// not here. Then what they would write is not written, and they take the time in which it reads
/// and writes what they are charged: long enough sleeps are taken together, for a host wakes late.
class kernels_queue : public tutti::host_loops<kernels_queue> {
 public:
  struct event {};
  event record() { return {}; }
  void wait(event) {}
  static bool passed(event) { return true; }
  void synchronize() {}

  void sleep_at(double bytes_per_second) { rate_ = bytes_per_second; }

  void charge(std::size_t bytes) {
    charged_ += bytes;
    if (rate_) {
      owed_ += static_cast<double>(bytes) / *rate_;
      if (owed_ > worth_sleeping) {
        const auto began = std::chrono::steady_clock::now();
        std::this_thread::sleep_for(std::chrono::duration<double>(owed_));
        owed_ -= std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
      }
    }
  }

  /// All that they were charged, in bytes.
  std::size_t charged() const { return charged_; }

  template <class F>
  void run(F f) {
    if (!rate_) {
      f();
    }
  }

 private:
  static constexpr tutti::seconds worth_sleeping = 200e-6;

  std::optional<double> rate_{};
  std::size_t charged_ = 0;
  tutti::seconds owed_ = 0;  // less than 0 after a sleep that was too long
};
static_assert(tutti::host_queue<kernels_queue> && tutti::device_queue<kernels_queue>);

}  // namespace compare
