// expect: tutti: this architecture sends floats as they are, so this compressor would do nothing. Fix: use compression::none, or an architecture that compresses, as architecture::replicated.
#include "tutti/architecture/adasum.hpp"
#include "tutti/architecture/replicated.hpp"
#include "tutti/compression/fp16.hpp"
#include "tutti/core/compose.hpp"

#ifdef GOOD
using combined = tutti::architecture::replicated<>;
#else
using combined = tutti::architecture::adasum<>;
#endif

tutti::compose<combined, tutti::compression::fp16> composed;
