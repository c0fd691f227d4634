#pragma once

#include "tutti/compression/elementwise.hpp"
#include "tutti/kernels/cast.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// The gradient travels, and is summed, in half precision.
/// Wire: n IEEE binary16, rounded to nearest, ties to even.
/// Overflow: what is above 65504, on a rank or in the sum on its way, arrives as an infinity, or as
/// NaN where two of them cancel: on every rank the same, so that whoever skips a step for it skips
/// it everywhere. The engine counts such elements, a gradient's own infinities among them, and says
/// how many in `engine.overflowed()` and its report. Nothing is scaled here: that is the trainer's,
/// who divides first by `architecture::replicated<mean::before>`, as PyTorch's hook does, or scales
/// the loss. Under error feedback an infinity stays in the residual.
/// Cost: half the bytes; one pass to encode, one to accumulate, one to count.
/// After: Sergeev and Del Balso, "Horovod", 2018 (no loss scaling, no residual).
struct fp16 : elementwise<kernels::half> {
  static constexpr bool overflows = true;
};
static_assert(compression_policy<fp16>);

}  // namespace tutti::compression
