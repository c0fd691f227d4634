// expect: tutti: this architecture divides gradients by the number of ranks before it encodes them, but this compressor's memory of them may outlast that number. Fix: use mean::after, or a compressor without memory.
#include "tutti/architecture/replicated.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/fp16.hpp"
#include "tutti/core/compose.hpp"

#ifdef GOOD
using compressor = tutti::compression::fp16;
#else
using compressor = tutti::compression::error_feedback<tutti::compression::fp16>;
#endif

tutti::compose<tutti::architecture::replicated<tutti::architecture::mean::before>, compressor>
    composed;
