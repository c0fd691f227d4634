// expect: tutti: only means of gradients, and models that are mixed in, can be applied a step late, but this architecture carries something else. Fix: delay architecture::replicated, all_reduce, pair_averaging, or a parameter_server that is updated_by::workers.
#include "tutti/architecture/delayed.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/core/compose.hpp"

#ifdef GOOD
using updated_by = tutti::updated_by::workers;
#else
using updated_by = tutti::updated_by::servers;
#endif

tutti::compose<tutti::architecture::delayed<
    tutti::architecture::parameter_server<tutti::consistency::synchronous, updated_by>>>
    composed;
