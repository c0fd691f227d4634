// expect: tutti: this architecture weighs every tensor as a whole, but this partition cuts tensors. Fix: use partition::none, or architecture::replicated.
#include "tutti/architecture/adasum.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/partition/none.hpp"

#ifdef GOOD
using cut = tutti::partition::none;
#else
using cut = tutti::partition::into;
#endif

tutti::compose<cut, tutti::architecture::adasum<>> composed;
