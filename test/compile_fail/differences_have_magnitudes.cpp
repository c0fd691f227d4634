// expect: tutti: this architecture sends what parameters have changed by, or momenta that move them, but this compressor sends the sign of that alone, and each would be 1. Fix: compression::scaled_sign, or an architecture that carries gradients.
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/compression/scaled_sign.hpp"
#include "tutti/compression/sign.hpp"
#include "tutti/core/compose.hpp"

#ifdef GOOD
using code = tutti::compression::scaled_sign;
#else
using code = tutti::compression::sign;
#endif

tutti::compose<code, tutti::architecture::parameter_server<tutti::consistency::asynchronous>>
    composed;
