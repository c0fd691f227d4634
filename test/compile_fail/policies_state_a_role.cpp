// expect: tutti: this policy does not say which role it plays. Fix: state one in it, as using role = tutti::role::compression.
#include "tutti/compression/fp16.hpp"
#include "tutti/core/compose.hpp"

#ifdef GOOD
using policy = tutti::compression::fp16;
#else
struct policy {};
#endif

tutti::compose<policy> composed;
