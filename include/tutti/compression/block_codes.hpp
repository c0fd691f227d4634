#pragma once

#include <cstddef>
#include <span>

#include "tutti/base/error.hpp"
#include "tutti/kernels/block_codes.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// Each element becomes a code of eight bits, which is one of a few numbers, times its block's
/// scale. The scale brings the block's largest magnitude to the largest of those numbers, so a
/// large element coarsens only its own block. With a block as long as the gradient there is one
/// scale a chunk.
/// Wire: a scale as a float for every block, then a byte an element. Blocks are counted from the
/// chunk's first element; the last may be shorter. An element arrives as the exact product of scale
/// and number. A block of zeros arrives as zeros. A block that holds NaN or an infinity arrives as
/// NaN in every element.
/// Cost: a quarter of the bytes and a float a block; one read to encode if a block stays in the
/// first-level cache, one pass to accumulate. With error feedback one pass does it all.
template <class Code>
class block_codes {
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

  constexpr block_codes() = default;
  /// Throws usage_error if a block would hold no element.
  explicit constexpr block_codes(const options& values) : options_(values) {
    if (values.block == 0) {
      throw usage_error("compression: a block must hold at least 1 element. Fix: 256");
    }
  }

  constexpr std::size_t block() const { return options_.block; }
  constexpr std::size_t wire_bytes(std::size_t elements) const {
    return scales_bytes(elements) + elements;
  }

  template <class Queue>
  void encode(Queue& queue, std::span<const float> gradient, wire out) const {
    kernels::quantise_blocks<Code>(queue, gradient, options_.block, out.header<float>(),
                                   codes(out, gradient.size()));
  }

  template <class Queue>
  void accumulate(Queue& queue, const_wire in, std::span<float> sum) const {
    kernels::add_dequantised<Code>(queue, in.header<float>(), codes(in, sum.size()), options_.block,
                                   sum);
  }

  /// Encodes gradient + residual; the residual becomes what the payload leaves behind.
  template <class Queue>
  void encode_with_residual(Queue& queue, std::span<const float> gradient,
                            std::span<float> residual, wire out, const chunk_context&) const {
    kernels::add_and_quantise_blocks<Code>(queue, residual, gradient, options_.block,
                                           out.header<float>(), codes(out, gradient.size()));
  }

 private:
  using stored = typename Code::stored;

  constexpr std::size_t scales_bytes(std::size_t elements) const {
    return kernels::block_count(elements, options_.block) * sizeof(float);
  }
  stored* codes(wire out, std::size_t elements) const {
    return out.header<stored>() + scales_bytes(elements);
  }
  const stored* codes(const_wire in, std::size_t elements) const {
    return in.header<stored>() + scales_bytes(elements);
  }

  options options_{};
};

}  // namespace tutti::compression
