#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>

#include "tutti/base/error.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/compression/none.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// Chunks of fewer than `bytes` bytes travel as floats; longer ones are compressed. `select`
/// decides by tensor instead, and groups each kind of tensor separately. This decorator is for
/// architectures that send every chunk in one way, as parameter servers do. Chunks that a fusion
/// has gathered are counted together, as they travel.
/// If a re-plan makes a chunk travel as floats, what the compressor has left out of its elements is
/// sent with it. A momentum must be outside, so that it covers all chunks:
/// `momentum_correction<dense_below<C>>`.
/// Wire: n floats, or as the decorated compressor. Cost: none of its own; under error feedback a
/// pass over what is not compressed.
/// After: BytePS, `BYTEPS_MIN_COMPRESS_BYTES`, which counts a tensor before it is cut: there the
/// last piece of a long tensor is compressed, however short.
template <encodes_once C>
class dense_below {
  static constexpr bool variable = facts::variable_length<C>;
  static_assert(!facts::keeps_momentum<C>,
                "tutti: chunks that are not compressed would be sent without the momentum that "
                "this compressor applies to all others. Fix: put the momentum outside, as in "
                "momentum_correction<dense_below<C>>.");

 public:
  using role = tutti::role::compression;
  static constexpr bool summable = false;
  static constexpr bool lossless = facts::lossless<C>;
  static constexpr bool overflows = facts::overflows<C>;
  static constexpr bool sends_signs_alone = facts::sends_signs_alone<C>;
  static constexpr bool sends_set_values = facts::sends_set_values<C>;
  static constexpr bool forgets_residuals = facts::forgets_residuals<C>;
  static constexpr bool decodes_in_scratch = facts::decodes_in_scratch<C>;
  static constexpr tutti::unit unit = facts::unit_of<C>;
  static constexpr std::size_t memory_per_element = facts::memory_per_element<C>;
  static constexpr auto memory_degrees = facts::memory_degrees<C>;

  struct options {
    options_of<C> compressed{};
    std::size_t bytes{65536};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      options_of<C>::describe(self.compressed, visit);
      visit("dense_below", self.bytes, "chunks of fewer bytes are not compressed");
    }
  };

  constexpr dense_below() = default;
  explicit constexpr dense_below(const options& values)
      : dense_below(make_policy<C>(values.compressed), values.bytes) {}
  constexpr dense_below(const C& compression, std::size_t bytes)
      : compression_(compression), bytes_(bytes) {}

  constexpr void expect_feedback(std::size_t elements) const {
    if (!dense(elements)) {
      tutti::expect_feedback(compression_, elements);
    }
  }
  constexpr void expect_magnitudes() const { tutti::expect_magnitudes(compression_); }

  constexpr std::size_t block() const requires(unit == tutti::unit::block) {
    return compression_.block();
  }
  constexpr std::size_t wire_bytes(std::size_t elements) const requires(!variable) {
    return dense(elements) ? none::wire_bytes(elements) : compression_.wire_bytes(elements);
  }
  constexpr std::size_t capacity(std::size_t elements) const requires variable {
    return dense(elements) ? none::wire_bytes(elements) : compression_.capacity(elements);
  }
  constexpr std::size_t expected(std::size_t elements) const requires variable {
    return dense(elements) ? none::wire_bytes(elements) : compression_.expected(elements);
  }
  constexpr std::size_t most_bytes(std::size_t elements) const {
    const std::size_t most_dense = bytes_ == 0 ? 0 : (bytes_ - 1) / sizeof(float);
    return std::max(tutti::most_bytes(compression_, elements),
                    none::wire_bytes(std::min(elements, most_dense)));
  }
  constexpr std::size_t scratch_bytes(std::size_t elements) const {
    return tutti::scratch_bytes(compression_, elements);
  }

  template <class Queue>
  requires(!variable) void encode(Queue& queue, std::span<const float> gradient, wire out,
                                  const chunk_context& where) const {
    if (dense(gradient.size())) {
      encode_dense(queue, gradient, out, where);
    } else {
      tutti::encode(compression_, queue, gradient, out, where);
    }
  }
  template <class Queue>
  requires variable void encode(Queue& queue, std::span<const float> gradient, wire out,
                                const chunk_context& where, std::size_t* length) const {
    if (dense(gradient.size())) {
      encode_dense(queue, gradient, out, where);
      *length = none::wire_bytes(gradient.size());
    } else {
      compression_.encode(queue, gradient, out, where, length);
    }
  }

  template <class Queue>
  void accumulate(Queue& queue, const_wire in, std::span<float> sum,
                  const chunk_context& where = {}) const {
    if (dense(sum.size())) {
      if (in.size < none::wire_bytes(sum.size())) {
        throw communication_error(sentence(
            {"a payload of ", in.size, " bytes arrived where floats need ",
             none::wire_bytes(sum.size()), ". Fix: give every rank the same compression options"}));
      }
      none{}.accumulate(queue, {in.data, none::wire_bytes(sum.size())}, sum);
    } else {
      tutti::accumulate(compression_, queue, in, sum, where);
    }
  }

  /// Does nothing for a chunk that travels as floats, because that is no selection.
  template <class Queue>
  requires clears_sent<C>
  void clear_sent(Queue& queue, const_wire payload, std::span<float> values) const {
    if (!dense(values.size())) {
      compression_.clear_sent(queue, payload, values);
    }
  }
  std::span<float> residual(const chunk_context& where,
                            std::size_t elements) const requires remembers_residuals<C> {
    return compression_.residual(where, elements);
  }

  /// Returns a relay that sends floats as it is, because that sends floats whatever the length.
  constexpr auto relay() const {
    using relayed = decltype(tutti::relay(compression_));
    if constexpr (facts::identity<relayed>) {
      return tutti::relay(compression_);
    } else {
      return dense_below<relayed>(tutti::relay(compression_), bytes_);
    }
  }

  template <class Queue>
  requires facts::rescales<C>
  void rescale(Queue& queue, const chunk_context& where, std::size_t elements, float factor) const {
    compression_.rescale(queue, where, elements, factor);
  }

 private:
  constexpr bool dense(std::size_t elements) const { return elements * sizeof(float) < bytes_; }

  template <class Queue>
  void encode_dense(Queue& queue, std::span<const float> gradient, wire out,
                    const chunk_context& where) const {
    const wire floats{out.data, none::wire_bytes(gradient.size())};
    none{}.encode(queue, gradient, floats);
    if constexpr (remembers_residuals<C>) {
      const std::span<float> left_out = residual(where, gradient.size());
      kernels::add(queue, floats.as<float>(), left_out);
      queue.clear(left_out.data(), left_out.size_bytes());
    }
  }

  C compression_{};
  std::size_t bytes_{options{}.bytes};
};

}  // namespace tutti::compression
