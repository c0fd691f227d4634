// expect: tutti: this architecture adds encoded payloads in flight, but this compressor's payloads do not add. Fix: use architecture::replicated, all_gather or parameter_server, or a compressor that is summable.
#include "tutti/architecture/all_gather.hpp"
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/core/compose.hpp"

#ifdef GOOD
using combined = tutti::architecture::all_gather;
#else
using combined = tutti::architecture::all_reduce<>;
#endif

tutti::compose<combined, tutti::compression::top_k> composed;
