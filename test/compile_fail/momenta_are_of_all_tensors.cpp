// expect: tutti: some tensors would be sent without the momentum that is applied to all others. Fix: put a momentum on both sides, as in select<Rule, momentum_correction<C>, momentum_correction<none>>, or use the optimizer's alone.
#include "tutti/base/tensor_rule.hpp"
#include "tutti/compression/fp16.hpp"
#include "tutti/compression/momentum_correction.hpp"
#include "tutti/compression/none.hpp"
#include "tutti/compression/select.hpp"
#include "tutti/core/compose.hpp"

using tutti::compression::momentum_correction;
using tutti::compression::none;
using tutti::compression::select;
using halves = momentum_correction<tutti::compression::fp16>;

#ifdef GOOD
using compressor = select<tutti::matrices, halves, momentum_correction<none>>;
#else
using compressor = select<tutti::matrices, halves, none>;
#endif

tutti::compose<compressor> composed;
