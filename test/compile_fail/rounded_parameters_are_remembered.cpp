// expect: tutti: parameters that are rounded whenever they travel forget every small update. Fix: compression::remembering_answers<C> or error_feedback<C>, or push_only<C>, whose parameters travel as floats.
#include "tutti/architecture/sharded_by_owners.hpp"
#include "tutti/compression/block_int8.hpp"
#include "tutti/compression/remembering_answers.hpp"
#include "tutti/core/compose.hpp"

#ifdef GOOD
using compressor = tutti::compression::remembering_answers<tutti::compression::block_int8>;
#else
using compressor = tutti::compression::block_int8;
#endif

tutti::compose<tutti::architecture::sharded_by_owners, compressor> composed;
