#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>

#include "tutti/compression/decorator.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// A compressor that handles the residual itself while it encodes, in fewer passes than its
/// decorator would need.
template <class C>
concept encodes_with_residual = requires(const C compression, inline_queue& queue,
                                         std::span<const float> gradient, std::span<float> residual,
                                         wire out, const chunk_context& where) {
  compression.encode_with_residual(queue, gradient, residual, out, where);
};

/// What a payload leaves behind is remembered and added to the next step's gradient. An infinity
/// would stay in the residual for good. optimizer::loss_scaled keeps infinities out, and undoes
/// what a skipped step has done to residuals. optimizer::scaled_elsewhere does the same for users
/// who scale the loss and skip steps with an optimizer of their own, as PyTorch's users do.
/// Wire: as the decorated compressor.
/// Cost: one float of memory an element beside the compressor's; three more passes, or none if the
/// compressor encodes with the residual itself.
/// After: Seide et al., "1-Bit SGD", 2014; Stich et al., "Sparsified SGD with Memory", 2018.
///
/// Around a `select`, it decorates each of the two compressors that loses something.
template <class C>
requires(encodes_once<C> || selects<C>) class error_feedback;

template <encodes_once C>
class error_feedback<C> : public decorator<error_feedback<C>, C, 1> {
  using base = decorator<error_feedback<C>, C, 1>;
  friend base;
  using base::compression_;
  static_assert(!remembers_residuals<C> && !facts::keeps_momentum<C>,
                "tutti: error feedback adds what was not sent to what is sent next, but this "
                "compressor's own memory holds that already. Fix: use error feedback once, inside, "
                "as in momentum_correction<error_feedback<C>>.");

 public:
  static constexpr bool lossless = facts::lossless<C>;

  using options = options_of<C>;

  constexpr error_feedback() = default;
  /// Throws usage_error if the compressor says that residuals grow without bound even for one
  /// element. `wire_bytes`, `capacity` and `most_bytes` throw it for the number of elements that
  /// they are given.
  explicit constexpr error_feedback(const options& values)
      : error_feedback(make_policy<C>(values)) {}
  explicit constexpr error_feedback(const C& compression) : base(compression) {
    tutti::expect_feedback(compression, 1);
  }

  constexpr std::size_t wire_bytes(std::size_t elements) const
      requires(!facts::variable_length<C>) {
    tutti::expect_feedback(compression_, elements);
    return base::wire_bytes(elements);
  }
  constexpr std::size_t capacity(std::size_t elements) const requires facts::variable_length<C> {
    tutti::expect_feedback(compression_, elements);
    return base::capacity(elements);
  }
  constexpr std::size_t most_bytes(std::size_t elements) const {
    tutti::expect_feedback(compression_, elements);
    return base::most_bytes(elements);
  }

  /// Encodes as `encode` does, but in separate passes, which work for any compressor of a fixed
  /// length.
  template <class Queue>
  void encode_in_steps(Queue& queue, std::span<const float> gradient, wire out,
                       const chunk_context& where) const {
    in_steps(queue, gradient, out, where,
             [&](std::span<const float> values, const chunk_context& inner) {
               tutti::encode(compression_, queue, values, out, inner);
             });
  }

  std::span<float> residual(const chunk_context& where, std::size_t elements) const {
    return where.row(0, elements);
  }

  constexpr std::size_t selected(std::size_t elements) const requires reaches_a_magnitude<C> {
    return compression_.selected(elements);
  }
  template <class Queue>
  requires reaches_a_magnitude<C>
  void find_magnitude(Queue& queue, std::span<const float> values, float* magnitude) const {
    compression_.find_magnitude(queue, values, magnitude);
  }
  template <class Queue>
  requires reaches_a_magnitude<C>
  void encode_from(Queue& queue, float magnitude, std::span<const float> values, wire out,
                   std::size_t* length) const {
    compression_.encode_from(queue, magnitude, values, out, length);
  }

  constexpr auto relay() const {
    return answered_by(
        [](const auto& its) { return error_feedback<std::remove_cvref_t<decltype(its)>>(its); });
  }

 protected:
  /// Returns a relay that sends floats as it is, because it has no residual, and any other relay
  /// with `remember` around it.
  template <class Remember>
  constexpr auto answered_by(Remember remember) const {
    if constexpr (facts::identity<decltype(tutti::relay(compression_))>) {
      return tutti::relay(compression_);
    } else {
      return remember(tutti::relay(compression_));
    }
  }

 private:
  template <class Queue, class Encode>
  void encode_instead(Queue& queue, std::span<const float> gradient, wire out,
                      const chunk_context& where, Encode encode) const {
    if constexpr (encodes_with_residual<C>) {
      compression_.encode_with_residual(queue, gradient, where.row(0, gradient.size()), out,
                                        where.after(1));
    } else {
      in_steps(queue, gradient, out, where, encode);
    }
  }

  /// Adds the gradient to the residual and encodes that. The residual then becomes input - decoded,
  /// computed as -(-input + decoded), so that no second array is needed.
  template <class Queue, class Encode>
  void in_steps(Queue& queue, std::span<const float> gradient, wire out, const chunk_context& where,
                Encode encode) const {
    const std::span<float> residual = where.row(0, gradient.size());
    const chunk_context inner = where.after(1);
    kernels::add(queue, residual, gradient);
    encode(residual, inner);
    kernels::negate(queue, residual);
    tutti::accumulate(compression_, queue, out, residual, inner);
    kernels::negate(queue, residual);
  }
};

}  // namespace tutti::compression
