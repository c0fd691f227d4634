// expect: tutti: two policies play the same role. Fix: keep one, or combine them into one policy.
#include "tutti/core/compose.hpp"
#include "tutti/fusion/all.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/partition/into.hpp"

#ifdef GOOD
using second = tutti::partition::into;
#else
using second = tutti::fusion::all;
#endif

tutti::compose<tutti::fusion::up_to, second> composed;
