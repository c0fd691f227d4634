// expect: tutti: only means of gradients, and models that are mixed in, can be applied a step late, but this architecture carries something else. Fix: delay architecture::replicated, all_reduce, pair_averaging, or a parameter_server that is updated_by::workers.
#include "tutti/architecture/delayed.hpp"
#include "tutti/architecture/momentum_exchange.hpp"
#include "tutti/core/compose.hpp"

#ifdef GOOD
using inner = tutti::architecture::reduce_scatter_all_gather;
#else
using inner = tutti::architecture::momentum_exchange;
#endif

tutti::compose<tutti::architecture::delayed<inner>> composed;
