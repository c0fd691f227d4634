#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tutti/base/error.hpp"
#include "tutti/compression/index_pairs.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// BytePS's `randomk`: elements drawn at random travel, exactly, in BytePS's format. All ranks draw
/// the same elements, and so does the rank that encodes their sum again. They are drawn with
/// replacement and are not scaled up: of n elements about n (1 - e^(-k/n)) travel. The others are
/// lost, or remembered under error feedback.
/// Wire: index_pairs; an element that was drawn twice is there twice, and counts once.
/// Step t draws the numbers from t * k on of xorshift128+ whose state is the seed twice, modulo the
/// chunk's length, as BytePS does where every step sends the chunk. Without a seed BytePS draws
/// different elements on every rank; here there is always a seed.
/// Cost: 8k bytes; k divisions to encode. Accumulating takes on a host a read of the pairs for each
/// 262144 elements, on a device k * k / 2 comparisons.
/// After: BytePS, `byteps_compressor_type: randomk`; Stich et al., "Sparsified SGD with Memory",
/// 2018.
class byteps_randomk {
 public:
  using role = tutti::role::compression;
  static constexpr bool summable = false;

  struct options {
    double density{0.001};
    std::size_t k{0};
    std::uint32_t seed{1};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("density", self.density, "share of each chunk's elements that is drawn and sent");
      visit("k", self.k, "number of elements drawn from each chunk; 0: set by density");
      visit("seed", self.seed, "seed from which all ranks draw");
    }
  };

  constexpr byteps_randomk() : byteps_randomk(options{}) {}
  /// Throws usage_error unless 0 < density <= 1 and the seed is not 0.
  explicit constexpr byteps_randomk(const options& values)
      : layout_(values.density, values.k), seed_(values.seed) {
    if (values.seed == 0) {
      throw usage_error(
          "compression::byteps_randomk: a seed of 0 draws only zeros. Fix: a seed of 1");
    }
  }

  constexpr std::size_t wire_bytes(std::size_t elements) const {
    return layout_.wire_bytes(elements);
  }

  template <class Queue>
  void encode(Queue& queue, std::span<const float> gradient, wire out,
              const chunk_context& where) const {
    const auto pairs = index_pairs::pairs(out);
    kernels::draw_pairs(queue, gradient, seed_, where.step * pairs.size(), pairs);
  }

  template <class Queue>
  void accumulate(Queue& queue, const_wire in, std::span<float> sum) const {
    kernels::add_pairs(queue, index_pairs::pairs(in), sum);
  }

  /// Encodes gradient + residual; the residual keeps whatever does not travel.
  template <class Queue>
  void encode_with_residual(Queue& queue, std::span<const float> gradient,
                            std::span<float> residual, wire out, const chunk_context& where) const {
    kernels::add(queue, residual, gradient);
    encode(queue, residual, out, where);
    kernels::clear_pairs(queue, residual, index_pairs::pairs(out));
  }

  template <class Queue>
  void clear_sent(Queue& queue, const_wire payload, std::span<float> values) const {
    kernels::clear_pairs(queue, values, index_pairs::pairs(payload));
  }

 private:
  index_pairs layout_;
  std::uint64_t seed_;
};
static_assert(compression_policy<byteps_randomk>);

}  // namespace tutti::compression
