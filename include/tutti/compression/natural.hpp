#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/kernels/counted_random.hpp"
#include "tutti/kernels/powers.hpp"
#include "tutti/kernels/signs.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// Each element becomes one of the two powers of two next to its magnitude, drawn at random so that
/// its expected value is the element. It is unbiased and needs no residual; its variance is at most
/// an eighth of the element's square. Below 2^-126, the least power that travels, the lower
/// neighbour is zero.
/// Wire: nine bits an element: words of 32 signs, laid out as those of `sign`, then each element's
/// exponent as a byte, as in a float. Zeros and infinities keep their signs, and NaN arrives as an
/// infinity. Finite magnitudes above 2^127 arrive as 2^127, which is the only bias.
/// Cost: 9/32 of the bytes; one pass to encode, one to accumulate.
/// After: Horváth et al., "Natural Compression for Distributed Deep Learning", 2019, which leaves
/// denormals and the order of the bits open.
class natural {
 public:
  using role = tutti::role::compression;
  static constexpr bool summable = false;

  struct options {
    std::uint64_t seed{1};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("seed", self.seed, "seed of the random numbers for rounding");
    }
  };

  constexpr natural() : natural(options{}) {}
  explicit constexpr natural(const options& values)
      : random_(kernels::counted_random(values.seed)) {}

  static constexpr std::size_t wire_bytes(std::size_t elements) {
    return signs_bytes(elements) + elements;
  }

  template <class Queue>
  void encode(Queue& queue, std::span<const float> gradient, wire out,
              const chunk_context& where) const {
    const auto random = random_.stream(where.rank).stream(where.step).from(where.drawn_from());
    kernels::round_to_powers(queue, gradient, random, out.header<std::uint32_t>(),
                             out.header<std::uint8_t>() + signs_bytes(gradient.size()));
  }

  template <class Queue>
  void accumulate(Queue& queue, const_wire in, std::span<float> sum) const {
    kernels::add_powers(queue, in.header<std::uint32_t>(),
                        in.header<std::uint8_t>() + signs_bytes(sum.size()), sum);
  }

  /// Rounds means by random numbers of their own, because a mean already depends on those that
  /// rounded its owner's gradient.
  constexpr natural relay() const {
    natural other = *this;
    other.random_ = random_.stream(~std::uint64_t{});
    return other;
  }

 private:
  static constexpr std::size_t signs_bytes(std::size_t elements) {
    return kernels::sign_words(elements) * sizeof(std::uint32_t);
  }

  kernels::counted_random random_;
};
static_assert(compression_policy<natural>);

}  // namespace tutti::compression
