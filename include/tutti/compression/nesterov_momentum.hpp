#pragma once

#include <cstddef>
#include <span>

#include "tutti/base/error.hpp"
#include "tutti/base/units.hpp"
#include "tutti/compression/decorator.hpp"
#include "tutti/kernels/momentum.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// Momentum before compression, each worker's own: m = momentum * m + g, and momentum * m + g is
/// encoded. An optimizer that keeps a momentum of the result is refused. It must be around error
/// feedback, not inside it, because what was not sent has been in the momentum already. A sum that
/// goes back has no momentum.
/// Wire: as the decorated compressor.
/// Cost: one float of memory and one of scratch an element; one more pass, of four floats an
/// element.
/// After: BytePS, `byteps_momentum_type: nesterov`; Sutskever et al., ICML 2013. BytePS applies its
/// momentum to tensors that it does not compress on the way back, which is equivalent to
/// `nesterov_momentum<none>` here.
template <encodes_once C>
class nesterov_momentum : public decorator<nesterov_momentum<C>, C, 1> {
  using base = decorator<nesterov_momentum<C>, C, 1>;
  friend base;
  using base::compression_;
  static_assert(
      !facts::keeps_momentum<C>,
      "tutti: this compressor would be given momenta and build another momentum of them, which "
      "diverges. Fix: keep one of the two, as in momentum_correction<error_feedback<C>>.");

 public:
  static constexpr bool keeps_momentum = true;

  struct options {
    options_of<C> compressed{};
    float momentum{0.9f};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      options_of<C>::describe(self.compressed, visit);
      visit("momentum", self.momentum, "share of its last direction that each worker keeps");
    }
  };

  constexpr nesterov_momentum() = default;
  /// Throws usage_error unless 0 <= momentum < 1.
  explicit constexpr nesterov_momentum(const options& values)
      : base(make_policy<C>(values.compressed)), momentum_(values.momentum) {
    if (!(values.momentum >= 0 && values.momentum < 1)) {
      throw usage_error(
          "compression::nesterov_momentum: momentum must be at least 0 and below 1. Fix: 0.9");
    }
  }

  constexpr std::size_t scratch_bytes(std::size_t elements) const {
    return direction_bytes(elements) + tutti::scratch_bytes(compression_, elements);
  }

  constexpr auto relay() const { return tutti::relay(compression_); }

 private:
  /// Returns the direction, in scratch, and takes the gradient into the momentum.
  template <class Queue>
  std::span<const float> along(Queue& queue, std::span<const float> gradient,
                               const chunk_context& where) const {
    const std::span<float> direction(reinterpret_cast<float*>(where.scratch.data()),
                                     gradient.size());
    kernels::add_nesterov(queue, where.row(0, gradient.size()), direction, gradient, momentum_);
    return direction;
  }
  template <class Queue, class Encode>
  void encode_instead(Queue& queue, std::span<const float> gradient, wire,
                      const chunk_context& where, Encode encode) const {
    encode(along(queue, gradient, where), inner(where, gradient.size()));
  }
  static chunk_context inner(const chunk_context& where, std::size_t elements) {
    chunk_context rest = where.after(1);
    rest.scratch =
        where.scratch.empty() ? where.scratch : where.scratch.subspan(direction_bytes(elements));
    return rest;
  }
  static constexpr std::size_t direction_bytes(std::size_t elements) {
    return round_up(elements * sizeof(float), 64);
  }

  float momentum_{options{}.momentum};
};

}  // namespace tutti::compression
