// expect: tutti: these servers drop or correct gradients before they update, and every worker goes on from their parameters. Fix: use updated_by::servers, or consistency::asynchronous.
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/core/compose.hpp"

#ifdef GOOD
using who = tutti::updated_by::servers;
#else
using who = tutti::updated_by::workers;
#endif

tutti::compose<tutti::architecture::parameter_server<tutti::consistency::backup_workers, who>>
    composed;
