#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "tutti/base/error.hpp"
#include "tutti/monitor/noise_scale.hpp"
#include "tutti/monitor/tee.hpp"

namespace tutti {

/// What becomes of the learning rate when a batch is so many times as large.
enum class rate_follows { nothing, square_root, batch };

/// A batch as large as the noise scale says that it pays to have: every `window` steps each worker
/// takes as many passes a step as bring all workers' batches to it, from 1 to `most`; the mean is
/// then over so many passes, whatever their number, and so the gradient stays one of an image. The
/// loop makes `passes()` of them before a step is over. The engine's monitor is
/// monitor::noise_scale, alone or in a tee; its value is of all workers, so that all take as many.
/// A run that goes on from a checkpoint begins with the passes of its options again.
/// For core/acting.hpp. Cost: a window's end waits for every tensor and the monitor's sums; a
/// change, what `engine::replan` costs.
/// After: McCandlish, Kaplan and Amodei, 2018; KungFu's adaptive batch size, Mai et al., OSDI 2020.
class batch_by_noise {
 public:
  /// `set`: options that the engine was made with. Throws usage_error for a window of no steps.
  template <class Options>
  batch_by_noise(const Options& set, std::uint64_t window, unsigned most,
                 rate_follows rate = rate_follows::nothing)
      : passes_(set.run.accumulation), window_(window), most_(most), rate_(rate) {
    if (window == 0 || most == 0) {
      throw usage_error(
          "batch_by_noise: a window of 0 steps, or no passes. Fix: at least 1 of each");
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

  /// Backward passes that each worker makes in a step.
  unsigned passes() const { return passes_; }

 private:
  /// A noise scale that is negative or not a number says nothing yet.
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
