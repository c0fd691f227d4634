#pragma once

#include "tutti/compression/block_codes.hpp"
#include "tutti/kernels/block_codes.hpp"
#include "tutti/kernels/cast.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

// Each element becomes a floating-point number of eight bits times its block's scale, rounded to
// nearest, ties to even.
//
// A scale is the smallest power of two that brings the block's largest magnitude into the format's
// range, but at least 2^-126. Encoding then rounds once, and decoding does not round. If the
// largest magnitude is above 1.75 * 2^127, the format's largest number times that scale would
// overflow a float. The scale is then half as large, and magnitudes above 1.75 * 2^127 arrive as
// 1.75 * 2^127. The formats' own infinities and NaN never travel: a block that holds one has NaN
// for a scale.
// After: Micikevicius et al., "FP8 Formats for Deep Learning", 2022. Its scales are of a tensor;
// here they are of a block of 256, and a block as large as the tensor has the published scale.

/// Codes in OCP's E4M3 format: four significant bits for magnitudes from 2^-6 to 448 times the
/// scale, fewer down to 2^-9 times the scale.
/// Wire and cost: those of block_codes.
struct fp8_e4m3 : block_codes<kernels::scaled_code<kernels::e4m3>> {
  using block_codes::block_codes;
};
static_assert(compression_policy<fp8_e4m3>);

/// Codes in OCP's E5M2 format: three significant bits for magnitudes from 2^-14 to 57344 times the
/// scale, fewer down to 2^-16 times the scale. For gradients whose magnitudes differ widely within
/// a block.
/// Wire and cost: those of block_codes.
struct fp8_e5m2 : block_codes<kernels::scaled_code<kernels::e5m2>> {
  using block_codes::block_codes;
};
static_assert(compression_policy<fp8_e5m2>);

}  // namespace tutti::compression
