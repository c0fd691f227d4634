#pragma once

#include <cmath>
#include <cstdint>

#include "tutti/optimizer/none.hpp"
#include "tutti/role/optimizer.hpp"

namespace tutti::optimizer {

/// What becomes of residuals where a step was not finite.
enum class after_skipping {
  residuals_go_back,  ///< to what they were before it
  residuals_stay,     ///< what they have become, in which no infinity is: nothing was kept; not
                      ///< for a compressor that makes infinities of numbers
};

/// Leaves averaged gradients for an optimizer of the user's, who multiplies the loss, divides
/// gradients by as much, and skips a step that is not finite. `scale`, by which the loss is
/// multiplied, follows the user's by `engine.change`; `skipped` is one more after a step that has
/// to be skipped, on every worker alike, whose gradients then are nothing in particular.
///
/// What compressors remember is then as it was before that step, and is as many times as large as
/// the scale: all that loss_scaled does for residuals, at its cost, and nothing to gradients. Where
/// residuals stay, `skipped` counts the steps in which a worker's own gradient was not finite, and
/// zeros were encoded in its place: at the cost of a look at what is encoded, and of no copy.
/// After: PyTorch's GradScaler.
struct scaled_elsewhere : none {
  static constexpr bool needs_all_gradients = true;

  float scale{1.0f};
  std::uint32_t skipped{0};
  after_skipping skipped_step{after_skipping::residuals_go_back};

  template <class Self, class Visitor>
  static void describe(Self& self, Visitor&& visit) {
    visit("scale", self.scale, "factor by which the loss is multiplied");
    visit("skipped", self.skipped, "number of steps so far that were not finite");
  }

  /// Throws usage_error for a scale that nothing can be divided by.
  void expect_values() const { expect_scale(scale); }

  bool goes_back() const { return skipped_step == after_skipping::residuals_go_back; }

  float begin_step(double squares) {
    const bool finite = std::isfinite(squares);
    skipped += finite ? 0 : 1;
    return finite ? 1.0f : 0.0f;
  }
};
static_assert(optimizer_policy<scaled_elsewhere>);

}  // namespace tutti::optimizer
