// expect: tutti: this compressor sends a selection of elements, and every parameter outside it would become 0. Fix: use a compressor that sends every element, or push_only<C>, whose parameters travel as floats.
#include "tutti/architecture/sharded_by_owners.hpp"
#include "tutti/compression/block_int8.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/core/compose.hpp"

#ifdef GOOD
using code = tutti::compression::block_int8;
#else
using code = tutti::compression::top_k;
#endif

tutti::compose<tutti::architecture::sharded_by_owners, tutti::compression::error_feedback<code>>
    composed;
