#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "tutti/base/error.hpp"
#include "tutti/kernels/counted_random.hpp"
#include "tutti/kernels/stratified.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::kernels {

constexpr std::array<std::string_view, 2> names(drawn_as) { return {"itself", "its_run"}; }

}  // namespace tutti::kernels

namespace tutti::compression {

/// k elements of each chunk travel, drawn at random without replacement: one from each of k runs
/// whose lengths differ by at most one. An element is thus drawn with probability 1 / the length of
/// its run. All ranks draw the same elements, and so does the rank that encodes their sum again,
/// which therefore loses nothing more.
/// Drawn as `itself`, a value is exact, and what was not drawn is left to error_feedback. Drawn as
/// `its_run`, a value is multiplied by the length of its run, so that the expected value of what is
/// decoded is the gradient. Error feedback around that is refused.
/// Wire: the key of the draw, 8 bytes, and k floats without indices; k = max(floor(n * density),
/// 1), and 0 bytes for an empty chunk. BytePS's format is `byteps_randomk`.
/// Cost: k random numbers to encode and k to accumulate; only drawn elements are read.
/// After: Stich et al., "Sparsified SGD with Memory", 2018; unbiased: Wangni et al., "Gradient
/// Sparsification", 2018. Deviation: both draw from the whole vector, and not run by run.
class random_k {
 public:
  using role = tutti::role::compression;
  static constexpr bool summable = false;

  struct options {
    double density{0.001};
    std::size_t k{0};
    kernels::drawn_as drawn_as{kernels::drawn_as::itself};
    std::uint64_t seed{1};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("density", self.density, "share of each chunk's elements that is drawn and sent");
      visit("k", self.k, "number of elements drawn from each chunk; 0: set by density");
      visit("drawn_as", self.drawn_as,
            "what a sent value stands for. itself: one element, for error feedback; its_run: all "
            "elements that it was drawn from, which is unbiased");
      visit("seed", self.seed, "seed from which all ranks draw");
    }
  };

  constexpr random_k() = default;
  /// Throws usage_error unless 0 < density <= 1.
  explicit constexpr random_k(const options& values) : options_(values) {
    if (!(values.density > 0 && values.density <= 1)) {
      throw usage_error(
          "compression::random_k: density must be above 0 and at most 1. Fix: 0.001 sends one "
          "element in a thousand");
    }
  }

  /// How many of `elements` elements travel.
  constexpr std::size_t selected(std::size_t elements) const {
    const std::size_t wanted =
        options_.k != 0
            ? options_.k
            : static_cast<std::size_t>(static_cast<double>(elements) * options_.density);
    return std::min(elements, std::max<std::size_t>(wanted, 1));
  }

  /// Throws usage_error above 2^32 - 1 elements.
  constexpr std::size_t wire_bytes(std::size_t elements) const {
    if (elements > std::numeric_limits<std::uint32_t>::max()) {
      throw usage_error(
          "compression::random_k: a chunk of more than 2^32 - 1 elements is too long to draw from "
          "by "
          "32-bit numbers. Fix: cut it with partition::into");
    }
    const std::size_t k = selected(elements);
    return k == 0 ? 0 : key_bytes + k * sizeof(float);
  }

  /// Throws usage_error if values are drawn as their run: for a run of r elements the residual
  /// would become 1 - r times the drawn element, and grow.
  constexpr void expect_feedback(std::size_t) const {
    if (options_.drawn_as == kernels::drawn_as::its_run) {
      throw usage_error(
          "compression::random_k: what drawn_as its_run sends is already unbiased, and error "
          "feedback around it would grow without bound. Fix: drawn_as itself, or no error "
          "feedback");
    }
  }

  template <class Queue>
  void encode(Queue& queue, std::span<const float> gradient, wire out,
              const chunk_context& where) const {
    // A compressor that encodes the drawn values (chain) may have the same seed, and rounds by the
    // stream of its rank. No rank has the number ~1, so this stream is independent of those.
    const auto random = kernels::counted_random(options_.seed).stream(~std::uint64_t{1});
    const std::uint64_t key = random.stream(where.step).bits(where.drawn_from());
    kernels::draw(queue, gradient, key, options_.drawn_as,
                  {out.header<std::uint32_t>(), values(out), count(out)});
  }

  template <class Queue>
  void accumulate(Queue& queue, const_wire in, std::span<float> sum) const {
    kernels::add_drawn(queue, drawn(in), sum);
  }

  template <class Queue>
  void clear_sent(Queue& queue, const_wire in, std::span<float> data) const {
    kernels::clear_drawn(queue, drawn(in), data);
  }

  /// Draws as itself: a sum of values that were multiplied by their runs' lengths already has that
  /// factor.
  constexpr random_k relay() const {
    random_k other = *this;
    other.options_.drawn_as = kernels::drawn_as::itself;
    return other;
  }

 private:
  static constexpr std::size_t key_bytes = 2 * sizeof(std::uint32_t);

  static kernels::const_drawn_values drawn(const_wire in) {
    return {in.header<std::uint32_t>(), values(in), count(in)};
  }
  static float* values(wire out) { return out.size == 0 ? nullptr : out.header<float>() + 2; }
  static const float* values(const_wire in) {
    return in.size == 0 ? nullptr : in.header<float>() + 2;
  }
  static std::size_t count(const_wire in) {
    return in.size == 0 ? 0 : (in.size - key_bytes) / sizeof(float);
  }

  options options_{};
};
static_assert(compression_policy<random_k>);

}  // namespace tutti::compression
