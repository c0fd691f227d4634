// expect: tutti: a strategy has no policy of this role, so it would do nothing.
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/collective/halving_doubling.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/up_to.hpp"

using wanted = tutti::collective::halving_doubling;
#ifdef GOOD
using second = tutti::architecture::all_reduce<wanted>;
#else
using second = wanted;
#endif

tutti::compose<tutti::fusion::up_to, second> composed;
