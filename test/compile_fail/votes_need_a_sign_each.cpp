// expect: tutti: this architecture counts votes, but this compressor's payload is not one sign per element. Fix: use compression::sign or signum, or architecture::replicated.
#include "tutti/architecture/majority_vote.hpp"
#include "tutti/compression/sign.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/core/compose.hpp"

#ifdef GOOD
using voter = tutti::compression::sign;
#else
using voter = tutti::compression::top_k;
#endif

tutti::compose<tutti::architecture::majority_vote, voter> composed;
