#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <type_traits>

#include "tutti/base/error.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/kernels/clipping.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// Error feedback that forgets. Before a step's gradient is added, each element e of the residual
/// becomes keep * e, and if that exceeds `most` in magnitude, +most or -most. So old residuals
/// fade, and large ones are cut. `most` is a magnitude of gradients whose loss is not scaled; loss
/// scaling multiplies it by its factor.
/// What is lost: e - clip(keep * e) of every element in each step, and nothing else. With both
/// defaults nothing is lost.
/// Wire: as error_feedback. Cost: as error_feedback, and one more pass over the residual.
/// After: Wu et al., "Error Compensated Quantized SGD", ICML 2018, and GRACE, Xu et al., ICDCS
/// 2021, whose residual memory is beta * e + g (the decay); Deeplearning4j's
/// ResidualClippingPostProcessor (the bound, there a multiple of its threshold, every five steps).
template <encodes_once C>
class fading_error_feedback : public decorator<fading_error_feedback<C>, error_feedback<C>, 0> {
  using base = decorator<fading_error_feedback<C>, error_feedback<C>, 0>;
  friend base;

 public:
  static constexpr bool forgets_residuals = true;

  struct options {
    float keep{1};
    float most{std::numeric_limits<float>::max()};
    options_of<C> decorated{};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("keep", self.keep, "share of a residual that is kept each step");
      visit("most", self.most, "largest magnitude of a residual, to which larger ones are clipped");
      options_of<C>::describe(self.decorated, visit);
    }
  };

  constexpr fading_error_feedback() = default;
  /// Throws usage_error unless 0 <= keep <= 1 and 0 <= most.
  explicit constexpr fading_error_feedback(const options& values)
      : fading_error_feedback(make_policy<error_feedback<C>>(values.decorated), values.keep,
                              values.most) {
    if (!(values.keep >= 0 && values.keep <= 1)) {
      throw usage_error(
          "compression::fading_error_feedback: keep must be at least 0 and at most 1. Fix: 0.9, or "
          "1 to keep everything");
    }
    if (!(values.most >= 0)) {
      throw usage_error(
          "compression::fading_error_feedback: most must be at least 0. Fix: a multiple of the "
          "largest gradient's magnitude");
    }
  }
  constexpr fading_error_feedback(const error_feedback<C>& remembers, float keep, float most)
      : base(remembers), keep_(keep), most_(most) {}

  constexpr auto relay() const {
    const auto answers = tutti::relay(base::compression_);
    if constexpr (facts::identity<decltype(tutti::relay(base::compression_))>) {
      return answers;
    } else {
      return of(answers);
    }
  }

 private:
  template <class Its>
  constexpr auto of(const error_feedback<Its>& remembers) const {
    return fading_error_feedback<Its>(remembers, keep_, most_);
  }

  template <class Queue, class Encode>
  void encode_instead(Queue& queue, std::span<const float> gradient, wire,
                      const chunk_context& where, Encode encode) const {
    kernels::fade(queue, this->residual(where, gradient.size()), keep_, where.scale * most_);
    encode(gradient, where);
  }

  float keep_{options{}.keep};
  float most_{options{}.most};
};

}  // namespace tutti::compression
