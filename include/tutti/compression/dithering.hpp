#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tutti/base/error.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/kernels/dithering.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::kernels {

/// Returns the enumerators' names, in their order.
constexpr std::array<std::string_view, 2> names(level_spacing) { return {"linear", "natural"}; }
constexpr std::array<std::string_view, 2> names(chunk_norm) { return {"largest", "euclidean"}; }

}  // namespace tutti::kernels

namespace tutti::compression {

/// BytePS's `dithering`: each element becomes a level of its chunk's norm, rounded up or down at
/// random so that its expected value is the element. It is unbiased and needs no residual.
/// Wire: the number of bits that follow, and the norm as a float. The bits follow in words of 32,
/// from the top bit down. Every element that is not 0 has its distance from the one before (the
/// first: from the chunk's begin, counted from 1), its sign (1: negative) and its level; numbers
/// are in Elias' delta code. Zeros fill the last word. A chunk of zeros has no bits, where BytePS
/// divides by its norm. A chunk whose norm is no finite float arrives as NaN in every element.
/// BytePS has the number of bits and the norm at the end, where a payload does not show how long it
/// is. Otherwise its bits are these, except for the random numbers: here they are counter-based, so
/// that a rank can draw one without drawing those before it.
/// Cost: with 16 levels of the largest magnitude about 7 bits an element, with as many of the
/// Euclidean norm about 1; two passes and a division an element to encode, one pass over what is
/// not 0 to accumulate. On host queues only: a payload's length is known only from its encoding,
/// and the host does not wait until a stream has encoded (rule lengths_must_be_known).
/// After: BytePS, `byteps_compressor_type: dithering`; natural levels: Horvath et al., "Natural
/// Compression for Distributed Deep Learning", 2019.
class dithering {
 public:
  using role = tutti::role::compression;
  static constexpr bool summable = false;

  struct options {
    std::size_t levels{16};
    kernels::level_spacing spacing{kernels::level_spacing::linear};
    kernels::chunk_norm norm{kernels::chunk_norm::largest};
    std::uint64_t seed{1};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("levels", self.levels, "number of levels (BytePS's k)");
      visit("spacing", self.spacing,
            "linear: levels 1/s, 2/s, ... 1; natural: levels 2^(1-s), ... 1/2, 1");
      visit("norm", self.norm,
            "what levels are shares of: a chunk's largest magnitude or its euclidean norm");
      visit("seed", self.seed, "seed of the random numbers for rounding");
    }
  };

  dithering() : dithering(options{}) {}
  /// Throws usage_error unless there are 1 to 65535 linear levels, or 1 to 24 natural ones.
  explicit dithering(const options& values)
      : code_{static_cast<std::uint32_t>(values.levels), values.spacing, values.norm},
        random_(kernels::counted_random(values.seed)) {
    if (values.spacing == kernels::level_spacing::linear &&
        (values.levels == 0 || values.levels > 65535)) {
      throw usage_error("compression::dithering: linear levels must be 1 to 65535. Fix: 16");
    }
    if (values.spacing == kernels::level_spacing::natural &&
        (values.levels == 0 || values.levels > 24)) {
      throw usage_error("compression::dithering: natural levels must be 1 to 24. Fix: 8");
    }
  }

  /// Throws usage_error if the payload might have more bits than its 32-bit count can hold.
  std::size_t capacity(std::size_t elements) const {
    const std::size_t bits = code_.most_bits(elements);
    if (bits > 0xffff'ffffu) {
      throw usage_error(sentence({"compression::dithering: a chunk of ", elements,
                                  " elements may need more bits than its payload can count. Fix: "
                                  "partition::into with pieces of at most ",
                                  0xffff'ffffu / code_.most_bits(1)}));
    }
    return kernels::dithering_bytes(bits);
  }
  /// Throws usage_error if rounding may leave more of a chunk behind than the chunk holds. An
  /// element's variance is at most a quarter of a level's square, or, between natural levels, an
  /// eighth of the element's own square. With levels of the largest magnitude an error never
  /// exceeds that magnitude.
  void expect_feedback(std::size_t elements) const {
    const double levels = code_.top();
    const bool linear = code_.spacing == kernels::level_spacing::linear;
    const double bound = levels * levels * (linear ? 4.0 : 3.5);
    if (code_.norm == kernels::chunk_norm::euclidean && static_cast<double>(elements) >= bound) {
      throw usage_error(
          sentence({"compression::dithering: with norm euclidean, rounding ", elements,
                    " elements may lose more than they hold, and error feedback around it would "
                    "grow without ",
                    "bound. Fix: norm largest, or partition::into with pieces of fewer than ",
                    static_cast<std::size_t>(std::ceil(bound)), " elements, or more levels"}));
    }
  }
  /// The expected bytes of elements that are normally distributed.
  std::size_t expected(std::size_t elements) const {
    const auto bits = static_cast<double>(elements) * bits_of_each(elements);
    return std::min(capacity(elements), kernels::dithering_bytes(static_cast<std::size_t>(bits)));
  }

  template <class Queue>
  void encode(Queue& queue, std::span<const float> gradient, wire out, const chunk_context& where,
              std::size_t* length) const {
    const auto random = random_.stream(where.rank).stream(where.step).from(where.drawn_from());
    kernels::encode_dithered(queue, gradient, code_, random, out.data, length);
  }

  template <class Queue>
  void accumulate(Queue& queue, const_wire in, std::span<float> sum) const {
    kernels::add_dithered(queue, in.bytes(), code_, sum);
  }

  /// Rounds means by random numbers of their own, because a mean already depends on those that
  /// rounded its owner's gradient.
  dithering relay() const {
    dithering other = *this;
    other.random_ = random_.stream(~std::uint64_t{});
    return other;
  }

 private:
  /// The mean number of bits of an element in a chunk of `elements` normally distributed ones.
  double bits_of_each(std::size_t elements) const {
    if (elements == 0) {
      return 0;
    }
    constexpr int points = 600;
    constexpr double widest = 6;
    const auto count = static_cast<double>(elements);
    const double norm = code_.norm == kernels::chunk_norm::euclidean
                            ? std::sqrt(count)
                            : std::max(1.0, std::sqrt(2 * std::log(count)));
    double weights = 0;
    double share = 0;
    double levels = 0;
    for (int point = 0; point < points; ++point) {
      const double deviation = std::min(norm, widest * (point + 0.5) / points);
      const double weight = std::exp(-deviation * deviation / 2);
      const auto its = level_near(static_cast<float>(deviation), norm);
      const auto add = [&](double level, double likely) {
        if (level > 0) {
          const auto number = static_cast<std::uint64_t>(level);
          share += weight * likely;
          levels += weight * likely * (1 + kernels::elias_delta(number).length);
        }
      };
      add(its.level, 1 - its.place);
      add(its.level + its.step, its.place);
      weights += weight;
    }
    share /= weights;
    double distances = 0;
    double farther = 1;  // probability that the next one is at least 2^digits - 1 away
    for (int digits = 1; digits <= 32 && farther > 1e-12; ++digits) {
      const double next = std::pow(1 - share, std::ldexp(1.0, digits) - 1);
      distances += (farther - next) * kernels::elias_delta(std::uint64_t{1} << (digits - 1)).length;
      farther = next;
    }
    return levels / weights + share * distances;
  }

  kernels::detail::level_below level_near(float magnitude, double norm) const {
    const auto top = static_cast<double>(code_.top());
    return code_.spacing == kernels::level_spacing::linear
               ? kernels::detail::find_level<kernels::level_spacing::linear>(magnitude, norm, top)
               : kernels::detail::find_level<kernels::level_spacing::natural>(magnitude, norm, top);
  }

  kernels::dithering_code code_;
  kernels::counted_random random_;
};
static_assert(compression_policy<dithering>);

}  // namespace tutti::compression
