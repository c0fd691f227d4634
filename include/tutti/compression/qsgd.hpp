#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/base/error.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/kernels/stochastic_levels.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// Each element becomes a level of its block's Euclidean norm, rounded up or down at random so that
/// its expected value is the element. It is unbiased and needs no residual. An element's variance
/// is at most a quarter of a level's square. A block's variance is therefore below the square of
/// its norm if the block has fewer than 4 * levels^2 elements; error feedback around longer blocks
/// is refused.
///
/// Wire: a string of bits. Every block begins with its norm as a float, rounded up. If that is 0 or
/// not finite, nothing more follows, and the block arrives as zeros or NaN. If levels^2 is below
/// `block`, every element that is not 0 has its distance from the one before (the first: from the
/// block's begin, counted from 1), its sign (1: negative) and its level; the distance to the
/// block's end comes last. Otherwise every element has its level plus 1, and its sign if it is
/// not 0. Numbers are in Elias' recursive code. Blocks are counted from the chunk's first element;
/// the last may be shorter.
///
/// Cost: with the defaults about 1.5 bits an element; one pass and a division an element to encode,
/// one pass to accumulate. On host queues only: a payload's length is known only from its encoding,
/// and the host does not wait until a stream has encoded (rule lengths_must_be_known).
///
/// After: Alistarh et al., "QSGD", NeurIPS 2017: its Code_s for few levels, Code'_s for many.
class qsgd {
 public:
  using role = tutti::role::compression;
  static constexpr bool summable = false;

  struct options {
    std::size_t levels{7};
    std::size_t block{512};
    std::uint64_t seed{1};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("levels", self.levels,
            "number of levels into which a block's norm is cut (the paper's s)");
      visit("block", self.block, "elements that share a norm (the paper's bucket)");
      visit("seed", self.seed, "seed of the random numbers for rounding");
    }
  };

  qsgd() : qsgd(options{}) {}
  /// Throws usage_error unless there are 1 to 65535 levels and a block holds 1 to 2^30 elements.
  explicit qsgd(const options& values)
      : code_{static_cast<std::uint32_t>(values.levels), values.block,
              values.levels * values.levels >= values.block},
        random_(kernels::counted_random(values.seed)) {
    if (values.levels == 0 || values.levels > 65535) {
      throw usage_error("compression::qsgd: levels must be 1 to 65535. Fix: 7");
    }
    if (values.block == 0 || values.block > (std::size_t{1} << 30)) {
      throw usage_error("compression::qsgd: a block must hold 1 to 2^30 elements. Fix: 512");
    }
    expected_bits_ = code_.every_element ? bits_of_each() : bits_of_few();
  }

  std::size_t capacity(std::size_t elements) const {
    const std::size_t whole = elements / code_.block;
    return bytes(whole * code_.most_bits(code_.block) + code_.most_bits(elements % code_.block));
  }
  /// The expected bytes of elements that are normally distributed, in whole blocks.
  std::size_t expected(std::size_t elements) const {
    const double bits = 32 * static_cast<double>(kernels::block_count(elements, code_.block)) +
                        static_cast<double>(elements) * expected_bits_;
    return std::min(capacity(elements), bytes(static_cast<std::size_t>(bits)));
  }

  /// Throws usage_error if rounding may leave more of a block behind than the block holds.
  void expect_feedback(std::size_t elements) const {
    const std::size_t together = std::min(elements, code_.block);
    const std::size_t most = 4 * std::size_t{code_.levels} * code_.levels - 1;
    if (together > most) {
      const double least = std::floor(std::sqrt(static_cast<double>(together)) / 2) + 1;
      throw usage_error(sentence(
          {"compression::qsgd: rounding ", together, " elements to ", code_.levels,
           " levels may lose more than they hold, and error feedback around it would grow without ",
           "bound. Fix: blocks of at most ", most, " elements, or ",
           static_cast<std::size_t>(least), " levels"}));
    }
  }

  template <class Queue>
  void encode(Queue& queue, std::span<const float> gradient, wire out, const chunk_context& where,
              std::size_t* length) const {
    const auto random = random_.stream(where.rank).stream(where.step).from(where.drawn_from());
    kernels::encode_levels(queue, gradient, code_, random, out.data, length);
  }

  template <class Queue>
  void accumulate(Queue& queue, const_wire in, std::span<float> sum) const {
    kernels::add_levels(queue, in.bytes(), code_, sum);
  }

  /// Rounds means by random numbers of their own, because a mean already depends on those that
  /// rounded its owner's gradient.
  qsgd relay() const {
    qsgd other = *this;
    other.random_ = random_.stream(~std::uint64_t{});
    return other;
  }

 private:
  static constexpr std::size_t bytes(std::size_t bits) { return (bits + 7) / 8; }

  /// The mean of `f(level)` over normally distributed elements.
  template <class F>
  double mean_over_levels(const F& f) const {
    constexpr int points = 600;
    constexpr double widest = 6;
    double weights = 0;
    double total = 0;
    for (int point = 0; point < points; ++point) {
      const double deviation = widest * (point + 0.5) / points;
      const double weight = std::exp(-deviation * deviation / 2);
      const double level = std::min<double>(
          code_.levels, deviation * code_.levels / std::sqrt(static_cast<double>(code_.block)));
      const double below = std::floor(level);
      const auto lower = static_cast<std::uint64_t>(below);
      total += weight * ((1 - (level - below)) * f(lower) + (level - below) * f(lower + 1));
      weights += weight;
    }
    return total / weights;
  }
  double bits_of_each() const {
    return mean_over_levels([](std::uint64_t level) {
      return kernels::elias_length(level + 1) + (level != 0 ? 1.0 : 0.0);
    });
  }
  double bits_of_few() const {
    const double share =
        mean_over_levels([](std::uint64_t level) { return level != 0 ? 1.0 : 0.0; });
    const double levels = mean_over_levels(
        [](std::uint64_t level) { return level != 0 ? 1.0 + kernels::elias_length(level) : 0.0; });
    double distances = 0;
    double likely = share;  // probability that the next one is this far away
    for (std::size_t distance = 1; distance <= code_.block && likely > 1e-12; ++distance) {
      distances += likely * kernels::elias_length(distance);
      likely *= 1 - share;
    }
    return levels + share * distances;
  }

  kernels::level_code code_;
  kernels::counted_random random_;
  double expected_bits_{};
};
static_assert(compression_policy<qsgd>);

}  // namespace tutti::compression
