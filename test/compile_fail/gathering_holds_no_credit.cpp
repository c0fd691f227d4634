// expect: tutti: this fusion holds a group back until all of it may go, but this schedule lets only so much go at once, and what is held back counts. Fix: schedule::as_ready, or fusion::when_ready.
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
