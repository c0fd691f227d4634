#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "tutti/base/error.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/units.hpp"
#include "tutti/base/wire.hpp"
#include "tutti/compression/decorator.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// One compressor selects elements, another encodes the selected values: `chain<top_k, fp16>` sends
/// them in half precision, `chain<top_k, qsgd>` in levels of their norm, `chain<top_k,
/// scaled_sign>` as a sign and one mean magnitude. Under error feedback the residual has both what
/// was not selected and what the second compressor has rounded away.
/// Wire: the selection's payload without its values, then the second compressor's payload of those
/// values, in their order.
/// Cost: the selection's; a copy of its payload in scratch; and passes over only the selected
/// values, also under error feedback.
/// After: Basu et al., "Qsparse-local-SGD", NeurIPS 2019 (QTop_k, SignTop_k); Sattler et al.,
/// "Robust and Communication-Efficient Federated Learning from Non-IID Data", 2019 (sparse ternary
/// compression, which also encodes the distances of indices).
template <selects_values Selection, encodes_once Code>
requires(facts::memory_per_element<Selection> == 0 && facts::memory_per_element<Code> == 0 &&
         facts::unit_of<Code> <= unit::block) class chain {
  static constexpr bool variable = facts::variable_length<Code>;

 public:
  using role = tutti::role::compression;
  static constexpr bool summable = false;
  static constexpr bool overflows = facts::overflows<Code>;
  static constexpr bool sends_signs_alone = facts::sends_signs_alone<Code>;
  static constexpr bool sends_set_values = facts::sends_set_values<Code>;
  static constexpr bool decodes_in_scratch = true;
  static constexpr tutti::unit unit = facts::unit_of<Selection>;

  struct options {
    options_of<Selection> selection{};
    options_of<Code> code{};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      options_of<Selection>::describe(self.selection, visit);
      options_of<Code>::describe(self.code, visit);
    }
  };

  constexpr chain() = default;
  explicit constexpr chain(const options& values)
      : chain(make_policy<Selection>(values.selection), make_policy<Code>(values.code)) {}
  constexpr chain(const Selection& selection, const Code& code)
      : selection_(selection), code_(code) {}

  constexpr std::size_t block() const requires(unit == tutti::unit::block) {
    return selection_.block();
  }
  constexpr std::size_t wire_bytes(std::size_t elements) const requires(!variable) {
    return head_bytes(elements) + code_.wire_bytes(selection_.selected(elements));
  }
  constexpr std::size_t capacity(std::size_t elements) const requires variable {
    return head_bytes(elements) + code_.capacity(selection_.selected(elements));
  }
  constexpr std::size_t expected(std::size_t elements) const requires variable {
    return head_bytes(elements) + code_.expected(selection_.selected(elements));
  }
  constexpr std::size_t most_bytes(std::size_t elements) const {
    return head_bytes(elements) + tutti::most_bytes(code_, selection_.selected(elements));
  }
  constexpr std::size_t scratch_bytes(std::size_t elements) const {
    return payload_room(elements) +
           std::max(tutti::scratch_bytes(selection_, elements),
                    tutti::scratch_bytes(code_, selection_.selected(elements)));
  }

  template <class Queue>
  requires(!variable) void encode(Queue& queue, std::span<const float> gradient, wire out,
                                  const chunk_context& where) const {
    const auto its = select(queue, gradient, out, where);
    tutti::encode(code_, queue, its.values, its.code, its.where);
  }
  template <class Queue>
  requires variable void encode(Queue& queue, std::span<const float> gradient, wire out,
                                const chunk_context& where, std::size_t* length) const {
    const auto its = select(queue, gradient, out, where);
    code_.encode(queue, its.values, its.code, its.where, length);
    const std::size_t head = head_bytes(gradient.size());
    queue.run([=] { *length += head; });
  }

  template <class Queue>
  void accumulate(Queue& queue, const_wire in, std::span<float> sum,
                  const chunk_context& where) const {
    const std::size_t n = sum.size();
    if (in.size < head_bytes(n)) {
      throw communication_error(
          sentence({"a payload of ", in.size, " bytes arrived where indices need ", head_bytes(n),
                    ". Fix: give every rank the same compression options"}));
    }
    queue.copy(where.scratch.data(), in.data, head_bytes(n));
    decode(queue, in, n, where);
    selection_.accumulate(queue, selected_in(where, n), sum);
  }

  /// Encodes gradient + residual; the residual becomes what the payload leaves behind.
  template <class Queue>
  requires(!variable) void encode_with_residual(Queue& queue, std::span<const float> gradient,
                                                std::span<float> residual, wire out,
                                                const chunk_context& where) const {
    const std::size_t n = gradient.size();
    kernels::add(queue, residual, gradient);
    encode(queue, residual, out, where);
    kernels::negate(queue, decode(queue, out, n, where));
    selection_.accumulate(queue, selected_in(where, n), residual);
  }

  template <class Queue>
  requires clears_sent<Selection>
  void clear_sent(Queue& queue, const_wire payload, std::span<float> values) const {
    selection_.clear_sent(queue, {payload.data, selection_.wire_bytes(values.size())}, values);
  }

  constexpr void expect_feedback(std::size_t elements) const {
    tutti::expect_feedback(selection_, elements);
    tutti::expect_feedback(code_, selection_.selected(elements));
  }
  constexpr void expect_magnitudes() const { tutti::expect_magnitudes(code_); }

  constexpr auto relay() const {
    return chain<decltype(tutti::relay(selection_)), decltype(tutti::relay(code_))>(
        tutti::relay(selection_), tutti::relay(code_));
  }

 private:
  struct selected_values {
    std::span<float> values;
    wire code;
    chunk_context where;
  };

  /// The bytes of a selection's payload before its values.
  constexpr std::size_t head_bytes(std::size_t elements) const {
    return selection_.wire_bytes(elements) - selection_.selected(elements) * sizeof(float);
  }
  constexpr std::size_t payload_room(std::size_t elements) const {
    return round_up(selection_.wire_bytes(elements), 64);
  }
  /// The selection's own payload, in scratch.
  wire selected_in(const chunk_context& where, std::size_t elements) const {
    return {where.scratch.data(), selection_.wire_bytes(elements)};
  }
  std::span<float> values_in(const chunk_context& where, std::size_t elements) const {
    return {reinterpret_cast<float*>(where.scratch.data() + head_bytes(elements)),
            selection_.selected(elements)};
  }
  chunk_context beside_payload(const chunk_context& where, std::size_t elements) const {
    chunk_context rest = where;
    rest.scratch = where.scratch.subspan(payload_room(elements));
    return rest;
  }

  /// Writes the payload up to its values. Returns the values, the room for their encoding, and the
  /// context for encoding them.
  template <class Queue>
  selected_values select(Queue& queue, std::span<const float> gradient, wire out,
                         const chunk_context& where) const {
    const std::size_t n = gradient.size();
    const std::size_t head = head_bytes(n);
    const chunk_context inner = beside_payload(where, n);
    tutti::encode(selection_, queue, gradient, selected_in(where, n), inner);
    queue.copy(out.data, where.scratch.data(), head);
    return {values_in(where, n), {out.data + head, out.size - head}, inner};
  }

  /// Decodes a payload's values into the place of the selection's.
  template <class Queue>
  std::span<float> decode(Queue& queue, const_wire in, std::size_t elements,
                          const chunk_context& where) const {
    const std::span<float> values = values_in(where, elements);
    const std::size_t head = head_bytes(elements);
    queue.clear(values.data(), values.size_bytes());
    tutti::accumulate(code_, queue, {in.data + head, in.size - head}, values,
                      beside_payload(where, elements));
    return values;
  }

  Selection selection_{};
  Code code_{};
};

}  // namespace tutti::compression
