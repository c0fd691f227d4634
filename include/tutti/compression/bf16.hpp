#pragma once

#include "tutti/compression/elementwise.hpp"
#include "tutti/kernels/cast.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// The gradient travels, and is summed, in bfloat16: with a float's range and 8 significant bits.
/// Wire: n bfloat16, rounded to nearest, ties to even. What rounds past the largest one, from
/// 3.3962e38 on, arrives as an infinity and is counted as by fp16.
/// Cost: half the bytes; one pass to encode, one to accumulate, one to count.
/// After: the bf16 compression hook of PyTorch DDP.
struct bf16 : elementwise<kernels::bfloat> {
  static constexpr bool overflows = true;
};
static_assert(compression_policy<bf16>);

}  // namespace tutti::compression
