// expect: tutti: the transport's own all-reduce adds floats, but this compressor sends something else. Fix: use collective::ring, or compression::none.
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/collective/native.hpp"
#include "tutti/compression/fp16.hpp"
#include "tutti/compression/none.hpp"
#include "tutti/core/compose.hpp"

#ifdef GOOD
using sent = tutti::compression::none;
#else
using sent = tutti::compression::fp16;
#endif

tutti::compose<tutti::architecture::all_reduce<tutti::collective::native>, sent> composed;
