// expect: tutti: models that have drifted apart under the first architecture stay apart under the second, which exchanges gradients. Fix: switch to one that averages models, or save, and start again with the other strategy.
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/architecture/local_sgd.hpp"
#include "tutti/architecture/model_averaging.hpp"
#include "tutti/architecture/switch_at.hpp"
#include "tutti/core/compose.hpp"

#ifdef GOOD
using second = tutti::architecture::local_sgd<>;
#else
using second = tutti::architecture::all_reduce<>;
#endif

tutti::compose<tutti::architecture::switch_at<tutti::architecture::model_averaging<>, second>>
    composed;
