#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tutti/base/tensor.hpp"
#include "tutti/monitor/gradients.hpp"
#include "tutti/monitor/open_steps.hpp"
#include "tutti/role/monitor.hpp"

namespace tutti::monitor {

/// Measures how much the workers' gradients differ: the sum over tensors of |mean(g^2) -
/// mean(g)^2|, which is the norm over elements of the variance over workers. It is equal on all
/// workers. Reads gradients where the tensors declare them to lie, when they are handed in: the sum
/// of a step's passes, divided by a loss scale. Steps in which one is not finite are left out.
/// Wire: every `interval` steps the gradient and its squares as doubles, from each worker to rank 0
/// and back: four times the gradient each way.
/// Cost: that, a pass over the gradient, and memory for the doubles on every worker.
/// After: KungFu's MonitorGradientVarianceOptimizer, which spends a second all-reduce on it, too.
class variance {
 public:
  using role = tutti::role::monitor;
  static constexpr bool observes = true;
  static constexpr bool reads_memory = true;

  /// Measures the first step and every `interval`-th step after it, or none if `interval` is 0.
  variance(std::span<const tensor> of, int workers, unsigned interval = 1)
      : workers_(workers), gradients_(gradients_of(of)), steps_(of.size(), interval) {
    for (const auto& each : gradients_) {
      first_.push_back(elements_);
      elements_ += each.size();
    }
  }

  void record(event what, std::uint32_t which, seconds) {
    if (what == event::ready) {
      if (auto* its = steps_.of(which)) {
        note(which, *its);
      }
    } else if (what == event::arrived) {
      steps_.arrived(which);
    }
  }
  std::span<double> sums() {
    mine_ = steps_.end().value_or(std::vector<double>());
    const double unit = 1 / static_cast<double>(scale_);
    for (std::size_t i = 0; i < mine_.size() && scale_ != 1; i += 2) {
      mine_[i] *= unit;
      mine_[i + 1] *= unit * unit;
    }
    return mine_;
  }
  void summed(std::span<const double> totals) {
    double sum = 0;
    for (std::size_t which = 0; which < gradients_.size(); ++which) {
      sum += norm(totals.subspan(2 * first_[which], 2 * gradients_[which].size()));
    }
    if (std::isfinite(sum)) {
      value_ = sum;
      ++taken_;
    }
  }
  void scaled(float scale) { scale_ = scale; }

  /// The value of the last step that was measured.
  double value() const { return value_; }
  std::uint64_t taken() const { return taken_; }

 private:
  void note(std::uint32_t which, std::vector<double>& into) {
    into.resize(2 * elements_);
    double* next = into.data() + 2 * first_[which];
    for (const float each : gradients_[which]) {
      const auto g = static_cast<double>(each);
      *next++ = g;
      *next++ = g * g;
    }
  }
  /// Returns a tensor's norm from the sums of each element and of its square.
  double norm(std::span<const double> totals) const {
    double squares = 0;
    for (std::size_t i = 0; i < totals.size(); i += 2) {
      const double mean = totals[i] / workers_;
      const double of_element = totals[i + 1] / workers_ - mean * mean;
      squares += of_element * of_element;
    }
    return std::sqrt(squares);
  }

  int workers_;
  std::vector<std::span<const float>> gradients_;
  std::vector<std::size_t> first_{};  ///< first element of each tensor
  std::size_t elements_ = 0;
  open_steps<std::vector<double>> steps_;
  float scale_ = 1;  ///< of the loss, in the step that ends next
  std::vector<double> mine_{};
  double value_ = 0;
  std::uint64_t taken_ = 0;
};
static_assert(monitor_policy<variance>);

}  // namespace tutti::monitor
