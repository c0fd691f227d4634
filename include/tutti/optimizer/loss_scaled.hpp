#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tutti/base/error.hpp"
#include "tutti/role/optimizer.hpp"

namespace tutti::optimizer {

/// Applies another optimizer to gradients of a loss that was multiplied by `scale`, so that small
/// gradients do not vanish in 16 bits. The training loop reads the scale before each backward pass,
/// as `engine.values().scale`, and gradients are divided by it. Call `engine.wait()` before reading
/// values that are to be changed and given to `engine.change`: a step that has not ended would
/// change them afterwards, and be undone on some ranks only. If any gradient is infinite or NaN,
/// the step updates nothing on any worker, and the scale is multiplied by `backoff`, as long as
/// gradients can still be divided by it. After `interval` steps in a row without such a gradient,
/// it is multiplied by `growth`. The number of the step, which Adam's corrections and random draws
/// use, also advances in a step that updates nothing.
///
/// After such a step, what compressors remember, on workers and on servers, is restored to what it
/// was before. What they remember is always multiplied by the same factor as the scale, and so are
/// bounds of compressors. A compressor that remembers, or whose payloads do not add, never sees an
/// infinity or NaN: where a worker has one, zeros are sent in the chunk's place, and the workers
/// tell each other. Values that are set beforehand, such as votes of 1 and -1 and MXNet's
/// thresholds, are multiplied by the scale, so that training is as without one.
/// Runs on the host only. Cost: two passes over the mean gradient; where a compressor remembers, as
/// much memory again and a copy of it each step; there, and where payloads do not add, a pass over
/// the gradient each step, and 8 bytes from each worker to rank 0 and back.
/// After: Micikevicius et al., "Mixed precision training", ICLR 2018. The defaults are those of
/// PyTorch's GradScaler.
template <optimizer_policy Optimizer>
struct loss_scaled : Optimizer {
  static constexpr bool needs_all_gradients = true;

  float scale{65536.0f};
  float growth{2.0f};
  float backoff{0.5f};
  std::uint32_t interval{2000};
  std::uint32_t finite_steps{0};
  std::uint32_t skipped{0};

  template <class Self, class Visitor>
  static void describe(Self& self, Visitor&& visit) {
    visit("scale", self.scale, "factor by which the loss is multiplied");
    visit("growth", self.growth, "factor of the scale after `interval` finite steps in a row");
    visit("backoff", self.backoff, "factor of the scale after a step that is not finite");
    visit("interval", self.interval, "finite steps in a row before the scale grows");
    visit("finite_steps", self.finite_steps, "number of finite steps in a row so far");
    visit("skipped", self.skipped, "number of steps so far that were not finite");
    Optimizer::describe(self, visit);
  }

  /// Throws usage_error for a scale by which gradients cannot be divided, for a `backoff` that is
  /// not between 0 and 1, for a `growth` that is below 1 or infinite, and for an `interval` of 0.
  void expect_values() const {
    expect_scale(scale);
    if (!(backoff > 0 && backoff < 1 && growth >= 1 && std::isfinite(growth))) {
      throw usage_error(
          "the loss's scale must fall after a step that is not finite, and must not fall after "
          "others. Fix: a backoff above 0 and below 1, such as 0.5, and a growth of 1 or more, "
          "such as 2");
    }
    if (interval == 0) {
      throw usage_error(
          "the loss's scale cannot grow after every 0 steps. Fix: an interval of 1 or more, and a "
          "growth of 1 if the scale must not grow");
    }
    tutti::expect_values(static_cast<const Optimizer&>(*this));
  }

  float begin_step(double squares) {
    if (!std::isfinite(squares)) {
      scale = std::max(scale * backoff, std::numeric_limits<float>::min());
      finite_steps = 0;
      ++skipped;
      return 0;
    }
    const float factor = 1 / scale;
    if (++finite_steps >= interval) {
      scale = std::isfinite(scale * growth) ? scale * growth : scale;
      finite_steps = 0;
    }
    if constexpr (facts::needs_all_gradients<Optimizer>) {
      const auto as_divided = static_cast<double>(factor);
      return factor * Optimizer::begin_step(squares * as_divided * as_divided);
    } else {
      return factor;
    }
  }
};

}  // namespace tutti::optimizer
