#pragma once

#include <cmath>
#include <cstdint>

#include "tutti/optimizer/none.hpp"
#include "tutti/role/optimizer.hpp"

namespace tutti::optimizer {

/// What is remembered after a step that was not finite.
enum class not_finite {
  is_skipped,  ///< what it was before
  is_taken,    ///< what it has become, less what is no number: nobody is prepared for going back
};

/// Leaves averaged gradients for an optimizer of the user's, who multiplies the loss, divides
/// gradients by as much, and skips a step that is not finite. `scale`, by which the loss is
/// multiplied, follows the user's by `engine.change`; `skipped` is one more after a step that has
/// to be skipped, on every worker alike, whose gradients then are nothing in particular.
///
/// What compressors remember is then as it was before that step, and is as many times as large as
/// the scale: all that loss_scaled does for residuals, at its cost, and nothing to gradients. Where
/// such a step `is_taken`, `skipped` counts those in which a worker's own gradient was not finite,
/// zeros of which have been encoded: at the cost of a look at what is encoded, and of no copy.
/// After: PyTorch's GradScaler.
struct scaled_elsewhere : none {
  static constexpr bool needs_all_gradients = true;

  float scale{1.0f};
  std::uint32_t skipped{0};
  not_finite a_step{not_finite::is_skipped};

  template <class Self, class Visitor>
  static void describe(Self& self, Visitor&& visit) {
    visit("scale", self.scale, "by which the loss is multiplied");
    visit("skipped", self.skipped, "steps that were not finite so far");
  }

  bool may_skip() const { return a_step == not_finite::is_skipped; }

  float begin_step(double squares) {
    const bool finite = std::isfinite(squares);
    skipped += finite ? 0 : 1;
    return finite ? 1.0f : 0.0f;
  }
};
static_assert(optimizer_policy<scaled_elsewhere>);

}  // namespace tutti::optimizer
