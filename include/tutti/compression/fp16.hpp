#pragma once

#include "tutti/compression/elementwise.hpp"
#include "tutti/kernels/cast.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// The gradient travels, and is summed, in half precision.
/// Wire: n IEEE binary16, rounded to nearest, ties to even; above 65504 it arrives as infinity.
/// Cost: half the bytes; one pass to encode, one to accumulate.
/// After: Sergeev and Del Balso, "Horovod", 2018 (no loss scaling, no residual).
struct fp16 : elementwise<kernels::half> {};
static_assert(compression_policy<fp16>);

}  // namespace tutti::compression
