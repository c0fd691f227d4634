// expect: tutti: this compressor sends several sums per tensor, or different payloads for different tensors, but this architecture handles one payload for all. Fix: use architecture::replicated or synchronous servers that add, and compressors that are summable, or one compressor of one payload.
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/compression/power_sgd.hpp"
#include "tutti/tutti.hpp"

#ifdef GOOD
using Architecture = tutti::architecture::parameter_server<>;
#else
using Architecture = tutti::architecture::parameter_server<tutti::consistency::asynchronous>;
#endif

tutti::compose<Architecture, tutti::compression::power_sgd> composed;
