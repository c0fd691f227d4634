#pragma once

#include <cstddef>
#include <span>

#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// The base of a compressor around another one, C. It takes over C's facts, the length of its
/// payloads, and how these are decoded, added and merged. `Derived` has `Rows` floats of memory an
/// element, before those of C, and says what is encoded in place of the gradient:
/// `encode_instead(queue, gradient, payload, where, encode)`, which calls `encode(values, inner)`
/// once. A derived class that uses scratch hides `scratch_bytes` and `inner`.
template <class Derived, encodes_once C, std::size_t Rows>
class decorator {
 public:
  using role = tutti::role::compression;
  static constexpr bool summable = C::summable;
  static constexpr bool overflows = facts::overflows<C>;
  static constexpr bool keeps_momentum = facts::keeps_momentum<C>;
  static constexpr bool sends_signs_alone = facts::sends_signs_alone<C>;
  static constexpr bool sends_set_values = facts::sends_set_values<C>;
  static constexpr bool forgets_residuals = facts::forgets_residuals<C>;
  static constexpr bool decodes_in_scratch = facts::decodes_in_scratch<C>;
  static constexpr tutti::unit unit = facts::unit_of<C>;
  static constexpr std::size_t memory_per_element = Rows + facts::memory_per_element<C>;
  static constexpr auto memory_degrees = after_rows_of_gradients<Rows>(facts::memory_degrees<C>);

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
  constexpr std::size_t most_bytes(std::size_t elements) const {
    return tutti::most_bytes(compression_, elements);
  }
  constexpr std::size_t scratch_bytes(std::size_t elements) const {
    return tutti::scratch_bytes(compression_, elements);
  }
  constexpr void expect_magnitudes() const { tutti::expect_magnitudes(compression_); }

  template <class Queue>
  requires(!facts::variable_length<C>) void encode(Queue& queue, std::span<const float> gradient,
                                                   wire out, const chunk_context& where) const {
    derived().encode_instead(queue, gradient, out, where,
                             [&](std::span<const float> values, const chunk_context& inner) {
                               tutti::encode(compression_, queue, values, out, inner);
                             });
  }
  template <class Queue>
  requires facts::variable_length<C>
  void encode(Queue& queue, std::span<const float> gradient, wire out, const chunk_context& where,
              std::size_t* length) const {
    derived().encode_instead(queue, gradient, out, where,
                             [&](std::span<const float> values, const chunk_context& inner) {
                               compression_.encode(queue, values, out, inner, length);
                             });
  }

  template <class Queue>
  void accumulate(Queue& queue, const_wire in, std::span<float> sum,
                  const chunk_context& where = {}) const {
    tutti::accumulate(compression_, queue, in, sum, where.after(Rows));
  }
  template <class Queue>
  requires decodes<C>
  void decode(Queue& queue, const_wire in, std::span<float> values,
              const chunk_context& where = {}) const {
    tutti::decode(compression_, queue, in, values, where.after(Rows));
  }
  template <class Queue>
  requires summable void fold(Queue& queue, wire into, const_wire from) const {
    compression_.fold(queue, into, from);
  }

  template <class Queue>
  requires clears_sent<C>
  void clear_sent(Queue& queue, const_wire payload, std::span<float> values) const {
    compression_.clear_sent(queue, payload, values);
  }
  std::span<float> residual(const chunk_context& where,
                            std::size_t elements) const requires remembers_residuals<C> {
    return compression_.residual(where.after(Rows), elements);
  }
  template <class Queue>
  requires facts::rescales<C>
  void rescale(Queue& queue, const chunk_context& where, std::size_t elements, float factor) const {
    compression_.rescale(queue, where.after(Rows), elements, factor);
  }

  constexpr std::size_t merging_bytes(std::size_t elements) const requires merges<C> {
    return compression_.merging_bytes(elements);
  }
  template <class Queue>
  requires merges<C>
  void merge(Queue& queue, wire into, const_wire from, std::span<float> left_out,
             const chunk_context& where) const {
    compression_.merge(queue, into, from, left_out, where.after(Rows));
  }
  template <class Queue>
  requires merges<C>
  void select(Queue& queue, std::span<const float> values, wire out,
              const chunk_context& where) const {
    compression_.select(queue, values, out, derived().inner(where, values.size()));
  }
  template <class Queue>
  requires merges<C>
  void add_absent(Queue& queue, const_wire payload, const_wire others, std::span<float> sum) const {
    compression_.add_absent(queue, payload, others, sum);
  }

  /// The context for C, for that many elements.
  static chunk_context inner(const chunk_context& where, std::size_t) { return where.after(Rows); }

 protected:
  constexpr decorator() = default;
  explicit constexpr decorator(const C& compression) : compression_(compression) {}

  C compression_{};

 private:
  const Derived& derived() const { return static_cast<const Derived&>(*this); }
};

}  // namespace tutti::compression
