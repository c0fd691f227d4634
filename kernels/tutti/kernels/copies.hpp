#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "tutti/base/host_device.hpp"
#include "tutti/base/queue.hpp"

namespace tutti::kernels {

/// Floats to be copied from one place to another.
struct copy_run {
  const float* from;
  float* to;
  std::size_t elements;
};

/// Copies every run, as one operation of the queue. No place that is written may overlap another
/// that is read or written. The list must live until the queue has run this. A device copies 1024
/// runs at a time, because a copy for each run would keep the host busy for longer than the device.
template <host_queue Queue>
void copy_runs(Queue& queue, std::span<const copy_run> runs) {
  queue.run([runs] {
    for (const copy_run& each : runs) {
      std::copy_n(each.from, each.elements, each.to);
    }
  });
}
void copy_runs(cuda::stream& queue, std::span<const copy_run> runs);

namespace element {

/// A list of runs in a device's memory, in the form that CUB takes.
struct run_list {
  const void** from;
  void** to;
  std::size_t* bytes;

  run_list from_entry(std::size_t first) const { return {from + first, to + first, bytes + first}; }
};

/// Writes runs to a list on a device. The runs are part of the kernel's parameters.
class listed_runs {
 public:
  static constexpr std::size_t most = 128;

  listed_runs(std::span<const copy_run> runs, const run_list& list) : list_(list) {
    std::copy(runs.begin(), runs.end(), runs_);
  }
  TUTTI_HD void operator()(std::size_t i) const {
    list_.from[i] = runs_[i].from;
    list_.to[i] = runs_[i].to;
    list_.bytes[i] = runs_[i].elements * sizeof(float);
  }

 private:
  run_list list_;
  copy_run runs_[most];
};

}  // namespace element

}  // namespace tutti::kernels
