// expect: tutti: this schedule begins the second half of an exchange later, but this exchange has no two halves. Fix: use architecture::all_reduce with collective::ring or canonical, and a compressor of one payload.
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/collective/star.hpp"
#include "tutti/schedule/split_phase.hpp"
#include "tutti/tutti.hpp"

#ifdef GOOD
using combined = tutti::architecture::all_reduce<>;
#else
using combined = tutti::architecture::all_reduce<tutti::collective::star>;
#endif

void train(tutti::engine<tutti::compose<tutti::schedule::split_phase, combined>,
                         tutti::transport::in_process, tutti::optimizer::sgd>& engine) {
  engine.wait();
}
