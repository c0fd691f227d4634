// expect: tutti: these servers take every push for itself, so that there is no sum to make a mean of, before or never. Fix: mean::after, or consistency::synchronous with updated_by::workers or servers.
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/core/compose.hpp"

#ifdef GOOD
using consistent = tutti::consistency::synchronous;
#else
using consistent = tutti::consistency::asynchronous;
#endif

tutti::compose<tutti::architecture::parameter_server<consistent, tutti::updated_by::servers,
                                                     tutti::architecture::mean::none>>
    composed;
