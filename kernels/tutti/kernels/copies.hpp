#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/base/host_device.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/kernels/elements.hpp"

namespace tutti::kernels {

/// Floats to be copied from one place to another.
struct copy_run {
  const float* from;
  float* to;
  std::size_t elements;
};

/// Copies every run as one operation of the queue; no place that is written overlaps another that
/// is read or written, and the list must live until the queue has run this. A device takes 96 runs
/// a launch, where a copy each would keep the host busy for longer than the device.
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

struct copy {
  TUTTI_HD void operator()(float from, float& to) const { to = from; }
};

/// Runs cut into pieces, one for a block of threads at a time; the list travels with the kernel.
class copy_pieces {
 public:
  static constexpr std::size_t most = 96;
  static constexpr std::size_t piece = 4096;

  explicit copy_pieces(std::span<const copy_run> runs) : count_(runs.size()) {
    std::copy(runs.begin(), runs.end(), runs_);
    for (std::size_t i = 0; i < count_; ++i) {
      first_piece_[i + 1] = first_piece_[i] + (runs_[i].elements + piece - 1) / piece;
    }
  }

  TUTTI_HD std::size_t pieces() const { return first_piece_[count_]; }

  /// What one of a block's threads copies of a piece.
  TUTTI_HD void operator()(std::size_t number, std::size_t thread, std::size_t threads) const {
    std::size_t low = 0;  // the run is in [low, high)
    for (std::size_t high = count_; high - low > 1;) {
      const std::size_t middle = (low + high) / 2;
      (first_piece_[middle] <= number ? low : high) = middle;
    }
    const copy_run& run = runs_[low];
    const std::size_t begin = (number - first_piece_[low]) * piece;
    const std::size_t n = run.elements - begin < piece ? run.elements - begin : piece;
    const float* from = run.from + begin;
    const only_written<float> to{run.to + begin};
    share_in_fours(thread, threads, n, copy{}, from, to);
  }

 private:
  copy_run runs_[most];
  std::size_t first_piece_[most + 1] = {};
  std::size_t count_;
};

}  // namespace element

}  // namespace tutti::kernels
