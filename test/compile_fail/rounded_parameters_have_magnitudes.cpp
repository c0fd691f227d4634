// expect: tutti: this compressor sends only a few values, such as 1 and -1, and every parameter would become one of them. Fix: use a compressor that sends magnitudes, such as block_int8, or push_only<C>, whose parameters travel as floats.
#include "tutti/architecture/sharded_by_owners.hpp"
#include "tutti/compression/block_int8.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/threshold.hpp"
#include "tutti/core/compose.hpp"

#ifdef GOOD
using code = tutti::compression::block_int8;
#else
using code = tutti::compression::two_bit;
#endif

tutti::compose<tutti::architecture::sharded_by_owners, tutti::compression::error_feedback<code>>
    composed;
