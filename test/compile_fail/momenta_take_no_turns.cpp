// expect: tutti: an architecture that owns parameters elsewhere, answers whoever asks, keeps copies of the parameters, exchanges momenta, or applies means a step late cannot take turns with another. Fix: switch between all_reduce, local_sgd, model_averaging, independent and the like, or save, and start again with the other strategy.
#include "tutti/architecture/momentum_exchange.hpp"
#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/architecture/switch_at.hpp"
#include "tutti/core/compose.hpp"

#ifdef GOOD
using first = tutti::architecture::reduce_scatter_all_gather;
#else
using first = tutti::architecture::momentum_exchange;
#endif

using second = tutti::architecture::reduce_scatter_all_gather;
tutti::compose<tutti::architecture::switch_at<first, second>> composed;
