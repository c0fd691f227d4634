#pragma once

#include <cstddef>
#include <span>

#include "tutti/base/error.hpp"
#include "tutti/base/units.hpp"
#include "tutti/kernels/momentum.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// Momentum before compression, each worker's own: m = momentum * m + g, and what is encoded is
/// momentum * m + g. The optimizer behind it has none. Around error feedback, not inside it: what
/// was not sent has been in the momentum already.
/// Wire: as the compressor that it decorates. A sum that goes back has no momentum.
/// Cost: one float of memory and one of scratch an element; a pass more, of four floats.
/// After: BytePS, `byteps_momentum_type: nesterov`; Sutskever et al., ICML 2013. BytePS gives its
/// momentum to tensors that it does not compress on the way back, which comes to the same as
/// `nesterov_momentum<none>` here.
template <encodes_once C>
class nesterov_momentum {
 public:
  using role = tutti::role::compression;
  static constexpr bool summable = C::summable;
  static constexpr tutti::unit unit = facts::unit_of<C>;
  static constexpr std::size_t memory_per_element = 1 + facts::memory_per_element<C>;

  struct options {
    options_of<C> compressed{};
    float momentum{0.9f};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      options_of<C>::describe(self.compressed, visit);
      visit("momentum", self.momentum, "share of the last direction that is kept, by each worker");
    }
  };

  constexpr nesterov_momentum() = default;
  /// Throws usage_error unless 0 <= momentum < 1.
  explicit constexpr nesterov_momentum(const options& values)
      : compression_(make_policy<C>(values.compressed)), momentum_(values.momentum) {
    if (!(values.momentum >= 0 && values.momentum < 1)) {
      throw usage_error(
          "compression::nesterov_momentum: momentum must be at least 0 and below 1. Fix: 0.9.");
    }
  }

  constexpr std::size_t block() const requires(unit == tutti::unit::block) {
    return compression_.block();
  }
  constexpr std::size_t wire_bytes(std::size_t elements) const
      requires(!facts::variable_length<C>) {
    return compression_.wire_bytes(elements);
  }
  constexpr std::size_t capacity(std::size_t elements) const requires facts::variable_length<C> {
    return compression_.capacity(elements);
  }
  constexpr std::size_t expected(std::size_t elements) const requires facts::variable_length<C> {
    return compression_.expected(elements);
  }
  constexpr std::size_t scratch_bytes(std::size_t elements) const {
    return round_up(elements * sizeof(float), 64) + tutti::scratch_bytes(compression_, elements);
  }

  template <class Queue>
  requires(!facts::variable_length<C>) void encode(Queue& queue, std::span<const float> gradient,
                                                   wire out, const chunk_context& where) const {
    tutti::encode(compression_, queue, along(queue, gradient, where), out, inner(where, gradient));
  }
  template <class Queue>
  requires facts::variable_length<C>
  void encode(Queue& queue, std::span<const float> gradient, wire out, const chunk_context& where,
              std::size_t* length) const {
    compression_.encode(queue, along(queue, gradient, where), out, inner(where, gradient), length);
  }

  template <class Queue>
  void accumulate(Queue& queue, const_wire in, std::span<float> sum) const {
    compression_.accumulate(queue, in, sum);
  }
  template <class Queue>
  requires summable void fold(Queue& queue, wire into, const_wire from) const {
    compression_.fold(queue, into, from);
  }

  constexpr auto relay() const { return tutti::relay(compression_); }

  template <class Queue>
  requires facts::rescales<C>
  void rescale(Queue& queue, const chunk_context& where, std::size_t elements, float factor) const {
    compression_.rescale(queue, where.after(1), elements, factor);
  }

 private:
  /// The direction, in scratch; the momentum takes the gradient in.
  template <class Queue>
  std::span<const float> along(Queue& queue, std::span<const float> gradient,
                               const chunk_context& where) const {
    const std::span<float> direction(reinterpret_cast<float*>(where.scratch.data()),
                                     gradient.size());
    kernels::add_nesterov(queue, where.row(0, gradient.size()), direction, gradient, momentum_);
    return direction;
  }
  static chunk_context inner(const chunk_context& where, std::span<const float> gradient) {
    chunk_context its = where.after(1);
    its.scratch = where.scratch.subspan(round_up(gradient.size() * sizeof(float), 64));
    return its;
  }

  C compression_{};
  float momentum_{options{}.momentum};
};

}  // namespace tutti::compression
