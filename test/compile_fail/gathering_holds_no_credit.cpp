// expect: tutti: this fusion holds a group back until all of it can be sent, but this schedule limits what is in flight and counts what is held back. Fix: use schedule::as_ready, or fusion::when_ready.
#include "tutti/core/compose.hpp"
#include "tutti/fusion/by_arrival.hpp"
#include "tutti/schedule/as_ready.hpp"
#include "tutti/schedule/by_priority.hpp"

#ifdef GOOD
using so_much_at_once = tutti::schedule::as_ready;
#else
using so_much_at_once = tutti::schedule::by_priority;
#endif

tutti::compose<tutti::fusion::by_arrival, so_much_at_once> composed;
