#pragma once

#include "tutti/compression/elementwise.hpp"
#include "tutti/kernels/cast.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// The gradient travels, and is summed, in half precision.
/// Wire: n IEEE binary16, rounded to nearest, ties to even.
/// Overflow: a magnitude above 65504, on a rank or in the sum on its way, arrives as an infinity,
/// or as NaN where two infinities cancel. It arrives alike on every rank, so whoever skips a step
/// for it skips it everywhere. The engine counts such elements, including infinities of the
/// gradient's own, and gives the count in `engine.overflowed()` and its report. Nothing is scaled
/// here. The trainer may divide first by `architecture::replicated<mean::before>`, as PyTorch's
/// hook does, or scale the loss. Under error feedback an infinity stays in the residual.
/// Cost: half the bytes; one pass to encode, one to accumulate, one to count.
/// After: Sergeev and Del Balso, "Horovod", 2018 (no loss scaling, no residual).
struct fp16 : elementwise<kernels::half> {
  static constexpr bool overflows = true;
};
static_assert(compression_policy<fp16>);

}  // namespace tutti::compression
