#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "tutti/optimizer/none.hpp"
#include "tutti/role/optimizer.hpp"

namespace tutti::optimizer {

/// What the user does with a step that is not finite.
enum class not_finite {
  is_skipped,
  is_taken,  ///< nobody multiplies the loss, and what is remembered need not be kept for going back
};
constexpr std::array<std::string_view, 2> names(not_finite) { return {"is_skipped", "is_taken"}; }

/// Leaves averaged gradients for an optimizer of the user's, who multiplies the loss, divides
/// gradients by as much, and skips a step that is not finite. `scale`, by which the loss is
/// multiplied, follows the user's by `engine.change`; `skipped` is one more after a step that has
/// to be skipped, on every worker alike, whose gradients then are nothing in particular.
///
/// What compressors remember is then as it was before that step, and is as many times as large as
/// the scale: all that loss_scaled does for residuals, at its cost, and nothing to gradients. Where
/// such a step is taken all the same, only infinities and NaN stay out of what is remembered, for a
/// look at what is encoded.
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
    visit("a_step", self.a_step, "that is not finite: is_skipped or is_taken");
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
