#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/base/error.hpp"
#include "tutti/kernels/block_codes.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// Each element becomes one of 255 multiples of its block's scale, which gives the largest
/// magnitude of the block 127: a large element coarsens its own block alone.
/// Wire: a scale as a float for every block, then a signed byte an element; blocks are counted from
/// the chunk's first element, the last may be shorter. A scale is the largest magnitude / 127, but
/// at least the least normal float, rounded up to 17 significant bits (down, where 127 times that
/// is no float): an element arrives as the exact product, within half a scale (and 2^-16 of it). A
/// block of zeros arrives as zeros; one that holds NaN or an infinity arrives as NaN, all of it.
/// Cost: a quarter of the bytes and a float a block; one read to encode, one pass to accumulate.
/// Under error feedback one pass does all.
/// After: Dettmers et al., "8-bit Optimizers via Block-wise Quantization", ICLR 2022, with evenly
/// spaced codes in place of its dynamic ones.
class block_int8 {
 public:
  using role = tutti::role::compression;
  static constexpr bool summable = false;
  static constexpr tutti::unit unit = tutti::unit::block;

  struct options {
    std::size_t block{256};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("block", self.block, "elements that share a scale");
    }
  };

  constexpr block_int8() = default;
  /// Throws usage_error if a block would hold nothing.
  explicit constexpr block_int8(const options& values) : options_(values) {
    if (values.block == 0) {
      throw usage_error("compression::block_int8: a block must hold an element. Fix: 256.");
    }
  }

  constexpr std::size_t block() const { return options_.block; }
  constexpr std::size_t wire_bytes(std::size_t elements) const {
    return scales_bytes(elements) + elements;
  }

  template <class Queue>
  void encode(Queue& queue, std::span<const float> gradient, wire out) const {
    kernels::quantise_blocks(queue, gradient, options_.block, out.header<float>(),
                             codes(out, gradient.size()));
  }

  template <class Queue>
  void accumulate(Queue& queue, const_wire in, std::span<float> sum) const {
    kernels::add_dequantised(queue, in.header<float>(), codes(in, sum.size()), options_.block, sum);
  }

  /// Encodes gradient + residual; the residual becomes what the payload leaves behind.
  template <class Queue>
  void encode_with_residual(Queue& queue, std::span<const float> gradient,
                            std::span<float> residual, wire out, const chunk_context&) const {
    kernels::add_and_quantise_blocks(queue, residual, gradient, options_.block, out.header<float>(),
                                     codes(out, gradient.size()));
  }

 private:
  constexpr std::size_t scales_bytes(std::size_t elements) const {
    return kernels::block_count(elements, options_.block) * sizeof(float);
  }
  std::int8_t* codes(wire out, std::size_t elements) const {
    return out.header<std::int8_t>() + scales_bytes(elements);
  }
  const std::int8_t* codes(const_wire in, std::size_t elements) const {
    return in.header<std::int8_t>() + scales_bytes(elements);
  }

  options options_{};
};
static_assert(compression_policy<block_int8>);

}  // namespace tutti::compression
