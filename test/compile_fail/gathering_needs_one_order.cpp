// expect: tutti: this fusion gathers at run time, but here every rank, or a server, would gather something else, or a launch does not end in one go. Fix: use fusion::up_to, or coordination::leader or negotiated with an architecture that needs all ranks at once, and a schedule that leaves exchanges whole.
#include "tutti/coordination/leader.hpp"
#include "tutti/coordination/local.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/when_ready.hpp"

#ifdef GOOD
using decides = tutti::coordination::leader;
#else
using decides = tutti::coordination::local;
#endif

tutti::compose<tutti::fusion::when_ready, decides> composed;
