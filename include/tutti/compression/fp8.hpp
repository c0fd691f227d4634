#pragma once

#include "tutti/compression/block_codes.hpp"
#include "tutti/kernels/block_codes.hpp"
#include "tutti/kernels/cast.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

// Each element becomes a floating-point number of eight bits times its block's scale, rounded to
// nearest, ties to even.
//
// A scale is the least power of two that brings the largest magnitude into the format's range, but
// at least 2^-126. Encoding then rounds once and decoding not at all. Where the format's largest
// number times the scale would be no float, from 1.75 * 2^127 on, the scale is half of that and
// magnitudes above 1.75 * 2^127 arrive as it. The formats' own infinities and NaN never travel: a
// block that holds one has NaN for a scale.
// After: Micikevicius et al., "FP8 Formats for Deep Learning", 2022, with scales of a block of 256
// in place of a tensor's: a block as large as the tensor is that.

/// Four significant bits from 2^-6 to 448 of the scale, fewer down to 2^-9.
/// Wire and cost: those of block_codes, the scale then a code of OCP's E4M3.
struct fp8_e4m3 : block_codes<kernels::scaled_code<kernels::e4m3>> {
  using block_codes::block_codes;
};
static_assert(compression_policy<fp8_e4m3>);

/// Three significant bits from 2^-14 to 57344 of the scale, fewer down to 2^-16: for gradients
/// whose magnitudes lie far apart within a block.
/// Wire and cost: those of block_codes, the scale then a code of OCP's E5M2.
struct fp8_e5m2 : block_codes<kernels::scaled_code<kernels::e5m2>> {
  using block_codes::block_codes;
};
static_assert(compression_policy<fp8_e5m2>);

}  // namespace tutti::compression
