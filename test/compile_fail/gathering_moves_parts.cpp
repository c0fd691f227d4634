// expect: tutti: this fusion gathers different chunks in every step, but this architecture has each rank update its own part of every chunk. Fix: use fusion::up_to.
#include "tutti/architecture/sharded.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/fusion/when_ready.hpp"

#ifdef GOOD
using gathered = tutti::fusion::up_to;
#else
using gathered = tutti::fusion::when_ready;
#endif

tutti::compose<gathered, tutti::architecture::sharded<>> composed;
