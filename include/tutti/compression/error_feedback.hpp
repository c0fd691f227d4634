#pragma once

#include <concepts>
#include <cstddef>
#include <span>

#include "tutti/kernels/arithmetic.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// A compressor that encodes the residual itself, in fewer passes than its decorator would.
template <class C>
concept encodes_with_residual = requires(const C compression, inline_queue& queue,
                                         std::span<const float> gradient, std::span<float> residual,
                                         wire out, const chunk_context& where) {
  compression.encode_with_residual(queue, gradient, residual, out, where);
};

/// What a payload leaves behind is remembered and added to the next step's gradient.
/// Wire: as the compressor that it decorates.
/// Cost: one float of memory an element, beside the compressor's; three passes more, or none where
/// the compressor encodes with the residual itself.
/// After: Seide et al., "1-Bit SGD", 2014; Stich et al., "Sparsified SGD with Memory", 2018.
///
/// Around a `select` it stands around each of the two that leaves something behind.
template <class C>
requires(encodes_once<C> || selects<C>) class error_feedback;

template <encodes_once C>
class error_feedback<C> {
 public:
  using role = tutti::role::compression;
  static constexpr bool summable = C::summable;
  static constexpr bool lossless = facts::lossless<C>;
  static constexpr tutti::unit unit = facts::unit_of<C>;
  static constexpr std::size_t memory_per_element = 1 + facts::memory_per_element<C>;

  using options = options_of<C>;

  constexpr error_feedback() = default;
  explicit constexpr error_feedback(const options& values) : compression_(make_policy<C>(values)) {}

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
    return tutti::scratch_bytes(compression_, elements);
  }

  template <class Queue>
  requires(!facts::variable_length<C>) void encode(Queue& queue, std::span<const float> gradient,
                                                   wire out, const chunk_context& where) const {
    if constexpr (encodes_with_residual<C>) {
      compression_.encode_with_residual(queue, gradient, where.row(0, gradient.size()), out,
                                        where.after(1));
    } else {
      encode_in_steps(queue, gradient, out, where);
    }
  }

  template <class Queue>
  requires facts::variable_length<C>
  void encode(Queue& queue, std::span<const float> gradient, wire out, const chunk_context& where,
              std::size_t* length) const {
    around(queue, gradient, out, where, [&](std::span<const float> residual) {
      compression_.encode(queue, residual, out, where.after(1), length);
    });
  }

  /// What `encode` means, for any compressor of a fixed length.
  template <class Queue>
  void encode_in_steps(Queue& queue, std::span<const float> gradient, wire out,
                       const chunk_context& where) const {
    around(queue, gradient, out, where, [&](std::span<const float> residual) {
      tutti::encode(compression_, queue, residual, out, where.after(1));
    });
  }

  template <class Queue>
  void accumulate(Queue& queue, const_wire in, std::span<float> sum) const {
    compression_.accumulate(queue, in, sum);
  }

  template <class Queue>
  requires summable void fold(Queue& queue, wire into, const_wire from) const {
    compression_.fold(queue, into, from);
  }

  template <class Queue>
  requires requires(const C& its, Queue& queue, const_wire payload, std::span<float> values) {
    its.clear_sent(queue, payload, values);
  }
  void clear_sent(Queue& queue, const_wire payload, std::span<float> values) const {
    compression_.clear_sent(queue, payload, values);
  }

  std::span<float> residual(const chunk_context& where, std::size_t elements) const {
    return where.row(0, elements);
  }
  constexpr std::size_t merging_bytes(std::size_t elements) const requires merges<C> {
    return compression_.merging_bytes(elements);
  }
  template <class Queue>
  requires merges<C>
  void merge(Queue& queue, wire into, const_wire from, std::span<float> left_out,
             const chunk_context& where) const {
    compression_.merge(queue, into, from, left_out, where.after(1));
  }
  template <class Queue>
  requires merges<C>
  void select(Queue& queue, std::span<const float> values, wire out,
              const chunk_context& where) const {
    compression_.select(queue, values, out, where.after(1));
  }
  template <class Queue>
  requires merges<C>
  void add_absent(Queue& queue, const_wire payload, const_wire others, std::span<float> sum) const {
    compression_.add_absent(queue, payload, others, sum);
  }

  /// What goes back as floats has no residual.
  constexpr auto relay() const requires requires(const C& its) {
    requires facts::identity<decltype(its.relay())>;
  }
  { return compression_.relay(); }

 private:
  /// The residual takes the gradient in, is encoded, and becomes input - decoded, computed as
  /// -(-input + decoded), so that no second array is needed.
  template <class Queue, class Encode>
  void around(Queue& queue, std::span<const float> gradient, wire out, const chunk_context& where,
              Encode encode_it) const {
    const std::span<float> residual = where.row(0, gradient.size());
    kernels::add(queue, residual, gradient);
    encode_it(residual);
    kernels::negate(queue, residual);
    compression_.accumulate(queue, out, residual);
    kernels::negate(queue, residual);
  }

  C compression_{};
};

}  // namespace tutti::compression
