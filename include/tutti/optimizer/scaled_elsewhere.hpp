#pragma once

#include <cmath>
#include <cstdint>

#include "tutti/optimizer/none.hpp"
#include "tutti/role/optimizer.hpp"

namespace tutti::optimizer {

/// What becomes of residuals after a step that was not finite.
enum class after_skipping {
  residuals_are_restored,  ///< they are restored to what they were before the step
  residuals_stay,  ///< they stay as the step has left them, without an infinity, and no copy is
                   ///< kept; not for a compressor that makes infinities of finite numbers
};

/// Leaves averaged gradients for an optimizer of the user's, where the user multiplies the loss,
/// divides gradients by the same factor, and skips a step that is not finite. `scale` is that
/// factor of the loss; the user passes its changes on with `engine.change`. `skipped` grows by one
/// on every worker after a step that has to be skipped. The gradients of such a step are
/// meaningless.
///
/// What compressors remember is restored after such a step to what it was before it, and is
/// multiplied by the same factor as the scale, as are their bounds. This is all that loss_scaled
/// does for residuals, at its cost; gradients are left alone. As there, values that are set
/// beforehand, such as votes of 1 and -1, are multiplied by the scale. Under residuals_stay,
/// `skipped` counts the steps in which some worker's own gradient was not finite and zeros were
/// encoded in its place. That costs a look at what is encoded, and no copy.
/// After: PyTorch's GradScaler.
struct scaled_elsewhere : none {
  static constexpr bool needs_all_gradients = true;

  float scale{1.0f};
  std::uint32_t skipped{0};
  after_skipping skipped_step{after_skipping::residuals_are_restored};

  template <class Self, class Visitor>
  static void describe(Self& self, Visitor&& visit) {
    visit("scale", self.scale, "factor by which the loss is multiplied");
    visit("skipped", self.skipped, "number of steps so far that were not finite");
  }

  /// Throws usage_error for a scale by which gradients cannot be divided.
  void expect_values() const { expect_scale(scale); }

  bool restores_residuals() const { return skipped_step == after_skipping::residuals_are_restored; }

  float begin_step(double squares) {
    const bool finite = std::isfinite(squares);
    skipped += finite ? 0 : 1;
    return finite ? 1.0f : 0.0f;
  }
};
static_assert(optimizer_policy<scaled_elsewhere>);

}  // namespace tutti::optimizer
