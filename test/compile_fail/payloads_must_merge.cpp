// expect: tutti: this architecture merges two payloads into one, but this compressor does not say how. Fix: use compression::top_k, or architecture::all_gather.
#include "tutti/architecture/sparse_tree.hpp"
#include "tutti/compression/fp16.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/core/compose.hpp"

#ifdef GOOD
using merger = tutti::compression::top_k;
#else
using merger = tutti::compression::fp16;
#endif

tutti::compose<tutti::architecture::sparse_tree, merger> composed;
