#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/base/error.hpp"
#include "tutti/kernels/block_signs.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// Each element becomes its sign times its block's mean magnitude, so that layers of different
/// magnitude in one chunk do not drown each other.
/// Wire: a mean as a float for every block, then one bit an element. Each block's bits are laid out
/// as `sign` lays out a chunk's. Blocks are counted from the chunk's first element; the last may be
/// shorter.
/// Cost: 1/32 of the bytes and a float a block; one read to encode, one pass to accumulate. Under
/// error feedback one pass does everything, where `scaled_sign` needs two.
/// After: Zheng, Huang and Kwok, "Communication-Efficient Distributed Blockwise Momentum SGD with
/// Error-Feedback", NeurIPS 2019.
class block_sign {
 public:
  using role = tutti::role::compression;
  static constexpr bool summable = false;
  static constexpr tutti::unit unit = tutti::unit::block;

  struct options {
    std::size_t block{512};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("block", self.block, "elements that share a magnitude, a multiple of 32");
    }
  };

  constexpr block_sign() = default;
  /// Throws usage_error unless a block is a multiple of 32 elements.
  explicit constexpr block_sign(const options& values) : options_(values) {
    if (values.block == 0 || values.block % 32 != 0) {
      throw usage_error(
          "compression::block_sign: a block must be a multiple of 32 elements, so that its signs "
          "fill whole words. Fix: 512");
    }
  }

  constexpr std::size_t block() const { return options_.block; }
  constexpr std::size_t wire_bytes(std::size_t elements) const {
    return blocks(elements) * sizeof(float) + kernels::sign_words(elements) * sizeof(std::uint32_t);
  }

  template <class Queue>
  void encode(Queue& queue, std::span<const float> gradient, wire out) const {
    kernels::pack_block_signs(queue, gradient, options_.block, out.header<float>(),
                              out.header<std::uint32_t>() + blocks(gradient.size()));
  }

  template <class Queue>
  void accumulate(Queue& queue, const_wire in, std::span<float> sum) const {
    kernels::add_block_signs(queue, in.header<float>(),
                             in.header<std::uint32_t>() + blocks(sum.size()), options_.block, sum);
  }

  /// Encodes gradient + residual; the residual becomes what the payload leaves behind.
  template <class Queue>
  void encode_with_residual(Queue& queue, std::span<const float> gradient,
                            std::span<float> residual, wire out, const chunk_context&) const {
    kernels::add_and_pack_block_signs(queue, residual, gradient, options_.block,
                                      out.header<float>(),
                                      out.header<std::uint32_t>() + blocks(gradient.size()));
  }

 private:
  constexpr std::size_t blocks(std::size_t elements) const {
    return kernels::block_count(elements, options_.block);
  }

  options options_{};
};
static_assert(compression_policy<block_sign>);

}  // namespace tutti::compression
