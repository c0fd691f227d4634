// expect: tutti: these servers apply every push by itself, so that there is no sum for mean::before or mean::none. Fix: use mean::after, or consistency::synchronous with updated_by::workers or servers.
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
