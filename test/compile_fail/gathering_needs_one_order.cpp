// expect: tutti: this fusion gathers chunks at run time, but in this strategy ranks or servers would gather different ones, or an exchange is done in several parts or ends a step later. Fix: use fusion::up_to, or coordination::leader or negotiated with an architecture that needs all ranks at once, and a schedule that leaves exchanges whole.
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
