#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

namespace tutti::optimizer {

/// How a learning rate falls after the warm-up.
enum class falling { constant, linear, cosine, in_steps };

/// The names, in the order of the enumerators.
constexpr std::array<std::string_view, 4> names(falling) {
  return {"constant", "linear", "cosine", "in_steps"};
}

/// A plain value: the learning rate as a function of the step. The rate rises linearly over the
/// first `warm_up` steps, from highest / warm_up in the first of them to `highest`. With `linear`
/// and `cosine` it falls from there to `lowest` at step `steps`, where it stays. With `in_steps` it
/// is multiplied by `factor` after every `every` steps, counted from step 0, but does not fall
/// below `lowest`. With `constant` it stays at `highest`.
/// After: Goyal et al., "Accurate, large minibatch SGD", 2017 (warm-up); Loshchilov and Hutter,
/// "SGDR", ICLR 2017 (cosine).
struct rate_schedule {
  float highest{0.1f};
  float lowest{0.0f};
  std::uint64_t warm_up{0};
  std::uint64_t steps{0};
  optimizer::falling falling{optimizer::falling::constant};
  std::uint64_t every{1};
  float factor{0.1f};

  template <class Self, class Visitor>
  static void describe(Self& self, Visitor&& visit) {
    visit("highest", self.highest, "learning rate after the warm-up");
    visit("lowest", self.lowest, "learning rate at the end");
    visit("warm_up", self.warm_up, "steps in which the rate rises linearly");
    visit("steps", self.steps, "steps after which the rate is the lowest");
    visit("falling", self.falling,
          "how the rate falls: constant (not at all), linear, cosine, or in_steps (by a factor)");
    visit("every", self.every, "number of steps after which the rate falls by a factor");
    visit("factor", self.factor, "factor by which the rate falls with in_steps");
  }

  /// The rate of the step that follows `step` others.
  float at(std::uint64_t step) const {
    if (step < warm_up) {
      return static_cast<float>(static_cast<double>(highest) * static_cast<double>(step + 1) /
                                static_cast<double>(warm_up));
    }
    const auto from = static_cast<double>(highest);
    const auto to = static_cast<double>(lowest);
    const double share = steps <= warm_up ? 1
                                          : std::min(1.0, static_cast<double>(step - warm_up) /
                                                              static_cast<double>(steps - warm_up));
    switch (falling) {
      case falling::constant:
        return highest;
      case falling::linear:
        return static_cast<float>(from + (to - from) * share);
      case falling::cosine:
        return static_cast<float>(to + (from - to) * (1 + std::cos(std::numbers::pi * share)) / 2);
      case falling::in_steps:
        return static_cast<float>(std::max(
            to, from * std::pow(static_cast<double>(factor), static_cast<double>(step / every))));
    }
    return highest;
  }
};

}  // namespace tutti::optimizer
