#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "tutti/base/error.hpp"
#include "tutti/monitor/noise_scale.hpp"
#include "tutti/monitor/tee.hpp"

namespace tutti {

/// How the learning rate follows when the batch becomes k times as large: not at all, by sqrt(k),
/// or by k.
enum class rate_follows { nothing, square_root, batch };

/// Adapts the batch size to the gradient noise scale. At the end of every `window` steps it sets
/// the number of backward passes of a step, from 1 to `most`, such that the batch of all workers
/// together comes closest to the noise scale. A gradient is the mean over the step's passes, and
/// so stays a gradient per image.
/// The training loop makes `passes()` passes in each step and calls this through core/acting.hpp.
/// The engine's monitor must be monitor::noise_scale, alone or in a tee; its estimate is over all
/// workers, so that all of them choose alike. A run that is resumed from a checkpoint starts with
/// the passes of its options again, but with the learning rate of the saved passes: set the rate of
/// the first ones after `load`, as rate_by_schedule does by itself.
/// Cost: the end of a window waits for every tensor and for the monitor's sums; a change costs what
/// `engine::replan` costs.
/// After: McCandlish, Kaplan and Amodei, 2018; KungFu's adaptive batch size, Mai et al., OSDI 2020.
class batch_by_noise {
 public:
  /// `set` are the options that the engine was made with. Throws usage_error if `window` or `most`
  /// is 0.
  template <class Options>
  batch_by_noise(const Options& set, std::uint64_t window, unsigned most,
                 rate_follows rate = rate_follows::nothing)
      : passes_(set.run.accumulation), window_(window), most_(most), rate_(rate) {
    if (window == 0 || most == 0) {
      throw usage_error(
          "batch_by_noise: the window of steps and the most passes must not be 0. Fix: at least 1 "
          "of each");
    }
  }

  template <class Engine>
  void after_step(Engine& engine, std::uint64_t step) {
    if ((step + 1) % window_ != 0) {
      return;
    }
    engine.drain();
    auto& seen = monitor::part_of<monitor::noise_scale>(engine.observed());
    const unsigned wanted = passes_for(seen.of_all().scale(), seen.images_a_pass());
    if (wanted != passes()) {
      change(engine, wanted);
      seen.accumulate(wanted);
    }
  }

  /// Backward passes that each worker makes in the current step.
  unsigned passes() const { return passes_; }

 private:
  /// Keeps the present number if the noise scale is not positive, as an estimate may be, or NaN.
  unsigned passes_for(double scale, double images_a_pass) const {
    if (!(scale > 0)) {
      return passes();
    }
    const double wanted = std::round(scale / images_a_pass);
    return static_cast<unsigned>(std::clamp(wanted, 1.0, static_cast<double>(most_)));
  }

  template <class Engine>
  void change(Engine& engine, unsigned wanted) {
    const double times = static_cast<double>(wanted) / passes();
    auto next = engine.asked();
    next.run.accumulation = passes_ = wanted;
    engine.replan(next);
    if (rate_ != rate_follows::nothing) {
      auto values = engine.values();
      values.learning_rate *=
          static_cast<float>(rate_ == rate_follows::batch ? times : std::sqrt(times));
      engine.change(values);
    }
  }

  unsigned passes_;
  std::uint64_t window_;
  unsigned most_;
  rate_follows rate_;
};

}  // namespace tutti
