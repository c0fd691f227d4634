// expect: tutti: this fusion may gather chunks of two steps at run time, but this architecture exchanges some steps differently from others. Fix: use fusion::up_to.
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/architecture/local_sgd.hpp"
#include "tutti/architecture/switch_at.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/fusion/when_ready.hpp"

#ifdef GOOD
using gathered = tutti::fusion::up_to;
#else
using gathered = tutti::fusion::when_ready;
#endif

tutti::compose<gathered, tutti::architecture::switch_at<tutti::architecture::all_reduce<>,
                                                        tutti::architecture::local_sgd<>>>
    composed;
