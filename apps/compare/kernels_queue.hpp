#pragma once

#include <chrono>
#include <cstddef>
#include <thread>

#include "tutti/base/queue.hpp"
#include "tutti/base/units.hpp"
#include "tutti/transport/simulated.hpp"

namespace compare {

/// The queue of a measured worker's kernels. They run on this CPU or, after `sleep_at`, not at all:
/// the worker then sleeps for as long as a device of the given memory bandwidth would read and
/// write the bytes that they are charged. Short sleeps are collected until they are worth it,
/// because a host wakes up late.
class kernels_queue : public tutti::transport::virtual_queue {
 public:
  static bool passed(event) { return true; }

  void sleep_at(double bytes_per_second) {
    rate_ = bytes_per_second;
    sleep_by([](virtual_queue& self, std::size_t bytes) {
      static_cast<kernels_queue&>(self).sleep(bytes);
    });
  }

 private:
  static constexpr tutti::seconds worth_sleeping = 200e-6;

  void sleep(std::size_t bytes) {
    owed_ += static_cast<double>(bytes) / rate_;
    if (owed_ > worth_sleeping) {
      const auto began = std::chrono::steady_clock::now();
      std::this_thread::sleep_for(std::chrono::duration<double>(owed_));
      owed_ -= std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    }
  }

  double rate_ = 0;
  tutti::seconds owed_ = 0;  // below 0 after a sleep that was too long
};
static_assert(tutti::host_queue<kernels_queue> && tutti::device_queue<kernels_queue>);

}  // namespace compare
