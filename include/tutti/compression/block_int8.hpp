#pragma once

#include "tutti/compression/block_codes.hpp"
#include "tutti/kernels/block_codes.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// Each element becomes one of 255 multiples of its block's scale, -127 to 127.
/// Wire: that of block_codes. A scale is the largest magnitude / 127, but at least the least normal
/// float, rounded up to 17 significant bits (down, if 127 times the scale would overflow a float).
/// An element arrives within half a scale (and 2^-16 of it).
/// Cost: that of block_codes.
/// After: Dettmers et al., "8-bit Optimizers via Block-wise Quantization", ICLR 2022, with evenly
/// spaced codes in place of its dynamic ones.
struct block_int8 : block_codes<kernels::int8_code> {
  using block_codes::block_codes;
};
static_assert(compression_policy<block_int8>);

}  // namespace tutti::compression
