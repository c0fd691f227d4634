#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/kernels/norms.hpp"
#include "tutti/monitor/gradients.hpp"
#include "tutti/monitor/open_steps.hpp"
#include "tutti/role/monitor.hpp"

namespace tutti::monitor {

/// An estimate of the gradient noise scale, from the squared norms of a gradient over a small batch
/// of b samples and of one over a large batch of B samples. It keeps the gradient's squared norm
/// without noise and the trace of the gradients' covariance:
///
///     |G|^2 = (B |G_B|^2 - b |G_b|^2) / (B - b)
///     S = (|G_b|^2 - |G_B|^2) / (1 / b - 1 / B)
///
/// Each is smoothed from step to step as x = smoothing * x + (1 - smoothing) * new, beginning with
/// the first value as it is. The noise scale is S / |G|^2. It may be negative, because the large
/// batch's norm is the smaller one only in the mean. Norms that are not finite are left out.
class noise_estimate {
 public:
  noise_estimate(double small_batch, double large_batch, double smoothing)
      : small_(small_batch), large_(large_batch), smoothing_(smoothing) {}

  /// Changes the batch sizes of later steps. The estimates so far do not depend on them.
  void resize(double small_batch, double large_batch) {
    small_ = small_batch;
    large_ = large_batch;
  }
  void take(double small_squares, double large_squares) {
    if (!std::isfinite(small_squares) || !std::isfinite(large_squares)) {
      return;
    }
    const double signal = (large_ * large_squares - small_ * small_squares) / (large_ - small_);
    const double noise = (small_squares - large_squares) / (1 / small_ - 1 / large_);
    signal_ = taken_ == 0 ? signal : smoothing_ * signal_ + (1 - smoothing_) * signal;
    noise_ = taken_ == 0 ? noise : smoothing_ * noise_ + (1 - smoothing_) * noise;
    ++taken_;
  }

  std::uint64_t taken() const { return taken_; }
  double signal() const { return signal_; }
  double noise() const { return noise_; }
  double scale() const { return noise_ / signal_; }

 private:
  double small_;
  double large_;
  double smoothing_;
  std::uint64_t taken_ = 0;
  double signal_ = 0;
  double noise_ = 0;
};

/// Estimates the gradient noise scale, which is about the batch size beyond which larger ones no
/// longer pay. Each worker compares its own gradient with the mean, as KungFu does, so that workers
/// get different values (`own`). The sums of their norms give all workers one steadier value
/// (`of_all`). Reads gradients where the tensors declare them to lie, and their mean before it is
/// divided by a loss scale or clipped. Norms are divided by the scale, so that steps of other
/// scales count as much. A step that is skipped is left out, and so is one in which a worker has no
/// batch and all its gradients are zeros, as after `engine.join`: the batch of all is then a
/// smaller one. What arrives must be a mean, or nearly: under architecture::adasum or
/// majority_vote, or a compressor that sends signs alone, the numbers say nothing. Wire: two
/// doubles behind a count from each worker to rank 0 and back, every `interval` steps. Cost: every
/// `interval` steps a pass over the gradient and one over its mean. After: McCandlish, Kaplan and
/// Amodei, "An empirical model of large-batch training", 2018; KungFu's
/// MonitorGradientNoiseScaleOptimizer.
class noise_scale {
 public:
  using role = tutti::role::monitor;
  static constexpr bool observes = true;
  static constexpr bool reads_memory = true;

  struct settings {
    std::size_t batch_size{};  ///< images of one worker in one pass
    int workers{};
    unsigned passes{1};    ///< how many are added up in one gradient
    unsigned interval{1};  ///< steps from one measurement to the next; 0: none
    double smoothing{0.9};
  };

  /// Throws usage_error if there is nothing to compare: fewer than two workers, an empty batch or
  /// no pass. An `interval` of 0 allows them.
  noise_scale(std::span<const tensor> of, const settings& set)
      : set_(set),
        gradients_(gradients_of(of)),
        steps_(of.size(), set.interval),
        own_(small_batch(set), small_batch(set) * set.workers, set.smoothing),
        of_all_(own_) {
    if (set.interval != 0 && (set.workers < 2 || set.batch_size == 0 || set.passes == 0)) {
      throw usage_error(
          "a noise scale compares one worker's batch with those of all, but there are " +
          std::to_string(set.workers) + " workers with batches of " +
          std::to_string(set.batch_size) + ". Fix: use two workers or more, or interval 0");
    }
  }

  void record(event what, std::uint32_t which, seconds) {
    if (what == event::ready) {
      if (norms* its = steps_.of(which)) {
        its->small += squares(gradients_[which]) / (1.0 * set_.passes * set_.passes);
      }
    } else if (what == event::arrived) {
      steps_.arrived(which);
    }
  }
  void mean(std::uint32_t which, std::span<const float> gradient) {
    if (norms* its = steps_.of(which)) {
      its->large += squares(gradient);
      ++its->means;
    }
  }
  std::span<double> sums() {
    const auto its = steps_.end();
    if (!its) {
      return {};
    }
    const bool left_out = its->means != gradients_.size() || its->small == 0;
    const double unit = 1 / (static_cast<double>(scale_) * static_cast<double>(scale_));
    mine_ = {its->small * unit,
             left_out ? std::numeric_limits<double>::infinity() : its->large * unit};
    not_summed_.push_back(mine_);
    return mine_;
  }
  void summed(std::span<const double> totals) {
    const auto [small, large] = not_summed_.front();
    not_summed_.erase(not_summed_.begin());
    if (std::isfinite(totals[1])) {
      own_.take(small, large);
    }
    of_all_.take(totals[0] / set_.workers, totals[1] / set_.workers);
  }

  void scaled(float scale) { scale_ = scale; }

  /// Changes the number of passes whose sum is a gradient, from the next step on. Call it only
  /// between steps.
  void accumulate(unsigned passes) {
    set_.passes = passes;
    own_.resize(small_batch(set_), small_batch(set_) * set_.workers);
    of_all_.resize(small_batch(set_), small_batch(set_) * set_.workers);
  }
  /// The number of images in one pass of all workers together.
  double images_a_pass() const { return static_cast<double>(set_.batch_size) * set_.workers; }

  /// This worker's estimate, without steps whose totals have not come: see `engine.drain`.
  const noise_estimate& own() const { return own_; }
  const noise_estimate& of_all() const { return of_all_; }

 private:
  struct norms {
    double small{};
    double large{};
    std::size_t means{};
  };

  static double small_batch(const settings& set) {
    return static_cast<double>(set.batch_size) * set.passes;
  }
  static double squares(std::span<const float> of) {
    inline_queue now;
    double sum = 0;
    kernels::sum_of_squares(now, of, &sum);
    return sum;
  }

  settings set_;
  std::vector<std::span<const float>> gradients_;
  open_steps<norms> steps_;
  float scale_ = 1;  ///< of the loss, in the step that ends next
  std::array<double, 2> mine_{};
  std::vector<std::array<double, 2>> not_summed_{};  ///< of steps whose totals have not come
  noise_estimate own_;
  noise_estimate of_all_;
};
static_assert(monitor_policy<noise_scale>);

}  // namespace tutti::monitor
