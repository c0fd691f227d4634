// expect: tutti: this architecture sends parameters, but this compressor is lossy and would change them. Fix: use compression::none, or an architecture that carries gradients or differences.
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/architecture/local_sgd.hpp"
#include "tutti/compression/bf16.hpp"
#include "tutti/core/compose.hpp"

#ifdef GOOD
using combined = tutti::architecture::all_reduce<>;
#else
using combined = tutti::architecture::local_sgd<>;
#endif

tutti::compose<combined, tutti::compression::bf16> composed;
