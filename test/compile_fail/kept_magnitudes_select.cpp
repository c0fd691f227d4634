// expect: tutti: this architecture keeps a least magnitude of elements to send, but this compressor does not select by one. Fix: use error_feedback<compression::by_kth_magnitude>, or architecture::all_gather.
#include "tutti/architecture/sparse_regions.hpp"
#include "tutti/compression/by_kth_magnitude.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/core/compose.hpp"

#ifdef GOOD
using selection = tutti::compression::by_kth_magnitude;
#else
using selection = tutti::compression::top_k;
#endif

tutti::compose<tutti::architecture::sparse_regions, selection> composed;
