#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <string_view>

#include "tutti/base/error.hpp"
#include "tutti/compression/decorator.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/kernels/clipping.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// Whether the momentum of elements that have been sent begins again at 0.
enum class factor_masking { sent, none };
constexpr std::array<std::string_view, 2> names(factor_masking) { return {"sent", "none"}; }

/// The compressor is given each rank's own momentum, u = momentum * u + gradient, in place of its
/// gradient. Residuals then grow as they would have in a dense optimizer. An optimizer with a
/// momentum of its own is refused. Around error_feedback this is deep gradient compression. Factor
/// masking then sets u to 0 for elements that were sent, so that no stale momentum follows them. It
/// masks nothing for a compressor that cannot tell what it has sent; only selections can.
///
/// Clipping: a rank's gradient whose Euclidean norm is above clip / sqrt(p) is scaled down to that
/// norm before it enters the momentum. The norm is a chunk's: with fusion::all the model's, as
/// published, otherwise a bucket's. It is the norm of gradients whose loss is not scaled; loss
/// scaling is divided out.
///
/// What is conserved: the momenta, as they were given to the compressor, are what it has sent plus
/// what it remembers. Deviation: the mean of momenta has no part for weight decay.
/// Wire: as the decorated compressor. Cost: one float of memory an element; one more pass, or two
/// with clipping.
/// After: Lin et al., "Deep Gradient Compression", ICLR 2018; unmasked: gTopK-SGD's code.
template <encodes_once C>
class momentum_correction : public decorator<momentum_correction<C>, C, 1> {
  using base = decorator<momentum_correction<C>, C, 1>;
  friend base;
  using base::compression_;
  static_assert(
      !facts::keeps_momentum<C>,
      "tutti: this compressor would be given momenta and build another momentum of them, which "
      "diverges. Fix: keep one of the two, as in momentum_correction<error_feedback<C>>.");

 public:
  static constexpr bool keeps_momentum = true;

  struct options {
    double momentum{0.9};
    factor_masking masking{factor_masking::sent};
    double clip{0};
    options_of<C> decorated{};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("momentum", self.momentum, "share of each rank's momentum that is kept each step");
      visit("masking", self.masking, "momenta that restart at 0: those of sent elements, or none");
      visit("clip", self.clip,
            "a rank's gradient is scaled down to a norm of at most this / sqrt(ranks); 0: no "
            "clipping");
      options_of<C>::describe(self.decorated, visit);
    }
  };

  constexpr momentum_correction() = default;
  /// Throws usage_error unless 0 <= momentum < 1 and 0 <= clip.
  explicit constexpr momentum_correction(const options& values)
      : base(make_policy<C>(values.decorated)), options_(values) {
    if (!(values.momentum >= 0 && values.momentum < 1)) {
      throw usage_error(
          "compression::momentum_correction: momentum must be at least 0 and below 1. Fix: 0.9");
    }
    if (!(values.clip >= 0)) {
      throw usage_error(
          "compression::momentum_correction: clip must be at least 0. Fix: a bound on the "
          "gradient's norm, or 0 for none");
    }
  }

  constexpr std::size_t scratch_bytes(std::size_t elements) const {
    return factor_bytes() + tutti::scratch_bytes(compression_, elements);
  }

  /// The decorated compressor's relay, because a sum of momenta has no momentum of its own.
  constexpr auto relay() const { return tutti::relay(compression_); }

 private:
  constexpr std::size_t factor_bytes() const { return options_.clip > 0 ? 64 : 0; }

  chunk_context inner(const chunk_context& where, std::size_t) const {
    chunk_context rest = where.after(1);
    rest.scratch = where.scratch.empty() ? where.scratch : where.scratch.subspan(factor_bytes());
    return rest;
  }

  template <class Queue, class Encode>
  void encode_instead(Queue& queue, std::span<const float> gradient, wire out,
                      const chunk_context& where, Encode encode) const {
    encode(momentum(queue, gradient, where), inner(where, gradient.size()));
    mask(queue, out, where, gradient.size());
  }

  template <class Queue>
  std::span<const float> momentum(Queue& queue, std::span<const float> gradient,
                                  const chunk_context& where) const {
    const std::span<float> row = where.row(0, gradient.size());
    const auto keep = static_cast<float>(options_.momentum);
    if (options_.clip > 0) {
      auto* const factor = reinterpret_cast<float*>(where.scratch.data());
      const double bound = options_.clip / std::sqrt(static_cast<double>(where.ranks));
      kernels::find_clip_factor(queue, gradient, where.scale, bound, factor);
      kernels::blend_clipped(queue, row, gradient, keep, factor);
    } else {
      kernels::blend(queue, row, gradient, keep, 1.0f);
    }
    return row;
  }

  template <class Queue>
  void mask(Queue& queue, const_wire sent, const chunk_context& where, std::size_t elements) const {
    if constexpr (clears_sent<C>) {
      if (options_.masking == factor_masking::sent) {
        compression_.clear_sent(queue, sent, where.row(0, elements));
      }
    }
  }

  options options_{};
};

}  // namespace tutti::compression
