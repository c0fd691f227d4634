#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tutti/base/tensor.hpp"
#include "tutti/monitor/open_steps.hpp"
#include "tutti/role/monitor.hpp"

namespace tutti::monitor {

/// Measures how far the workers' models are apart after a step: the root of the mean over workers
/// of |x - mean(x)|^2, 0 if all models are equal. It is computed as a difference of sums, which are
/// rounded, so that a distance below about 1e-8 of the model's norm may show as 0. Wire: every
/// `interval` steps the parameters as doubles, from each worker to rank 0 and back: twice the model
/// each way. Cost: that, a pass over the parameters, and memory for the doubles on every worker.
/// After: Lian et al., NeurIPS 2017, whose bounds are of this distance; Kong et al., "Consensus
/// control for decentralized deep learning", ICML 2021.
class consensus_distance {
 public:
  using role = tutti::role::monitor;
  static constexpr bool observes = true;
  static constexpr bool reads_memory = true;

  /// Measures the first step and every `interval`-th step after it, or none if `interval` is 0.
  consensus_distance(std::span<const tensor> of, int workers, unsigned interval = 1)
      : workers_(workers), steps_(of.size(), interval) {
    for (const tensor& each : of) {
      parameters_.push_back(each.parameter);
      first_.push_back(elements_);
      elements_ += each.parameter.size();
    }
  }

  void record(event what, std::uint32_t which, seconds) {
    if (what == event::arrived) {
      if (auto* its = steps_.of(which)) {
        note(which, *its);
      }
      steps_.arrived(which);
    }
  }
  std::span<double> sums() {
    mine_ = steps_.end().value_or(std::vector<double>());
    return mine_;
  }
  void summed(std::span<const double> totals) {
    double of_mean = 0;
    for (const double each : totals.first(elements_)) {
      of_mean += (each / workers_) * (each / workers_);
    }
    value_ = std::sqrt(std::max(totals[elements_] / workers_ - of_mean, 0.0));
    ++taken_;
  }

  /// The distance after the last step that was measured.
  double value() const { return value_; }
  std::uint64_t taken() const { return taken_; }

 private:
  /// Writes the tensor's parameters to their place in `into` and adds their squares to the last
  /// element.
  void note(std::uint32_t which, std::vector<double>& into) {
    into.resize(elements_ + 1);
    double squares = 0;
    double* next = into.data() + first_[which];
    for (const float each : parameters_[which]) {
      *next = static_cast<double>(each);
      squares += *next * *next;
      ++next;
    }
    into[elements_] += squares;
  }

  int workers_;
  std::vector<std::span<const float>> parameters_{};
  std::vector<std::size_t> first_{};  ///< first element of each tensor
  std::size_t elements_ = 0;
  open_steps<std::vector<double>> steps_;
  std::vector<double> mine_{};
  double value_ = 0;
  std::uint64_t taken_ = 0;
};
static_assert(monitor_policy<consensus_distance>);

}  // namespace tutti::monitor
