// expect: tutti: an architecture that owns parameters elsewhere, answers whoever asks, keeps copies of the parameters, exchanges momenta, or applies means a step late cannot take turns with another. Fix: switch between all_reduce, local_sgd, model_averaging, independent and the like, or save, and start again with the other strategy.
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/architecture/independent.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/architecture/switch_at.hpp"
#include "tutti/core/compose.hpp"

#ifdef GOOD
using second = tutti::architecture::independent;
#else
using second = tutti::architecture::parameter_server<>;
#endif

tutti::compose<tutti::architecture::switch_at<tutti::architecture::all_reduce<>, second>> composed;
