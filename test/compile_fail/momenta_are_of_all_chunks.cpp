// expect: tutti: chunks that are not compressed would be sent without the momentum that this compressor applies to all others. Fix: put the momentum outside, as in momentum_correction<dense_below<C>>.
#include "tutti/compression/dense_below.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/momentum_correction.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/core/compose.hpp"

using tutti::compression::dense_below;
using tutti::compression::momentum_correction;
using selection = tutti::compression::error_feedback<tutti::compression::top_k>;

#ifdef GOOD
using compressor = momentum_correction<dense_below<selection>>;
#else
using compressor = dense_below<momentum_correction<selection>>;
#endif

tutti::compose<compressor> composed;
