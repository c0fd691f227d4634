// expect: tutti: this architecture sends changes of parameters, or momenta, but this compressor sends only their signs, so that each would have magnitude 1. Fix: use compression::scaled_sign, or an architecture that carries gradients.
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
