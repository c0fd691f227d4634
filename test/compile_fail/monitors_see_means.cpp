// expect: tutti: this monitor compares each step's gradients with their mean, but this architecture leaves its workers none, only a sum, or the mean of the step before. Fix: use monitor::variance or consensus_distance, or an architecture such as architecture::replicated<>.
#include "tutti/architecture/local_sgd.hpp"
#include "tutti/monitor/noise_scale.hpp"
#include "tutti/tutti.hpp"

#ifdef GOOD
using strategy = tutti::compose<>;
#else
using strategy = tutti::compose<tutti::architecture::local_sgd<> >;
#endif

void train(tutti::transport::in_process& world, tutti::monitor::noise_scale& watching) {
  auto engine =
      tutti::make_engine<strategy>(world, {}, tutti::optimizer::sgd{}, {}, std::move(watching));
  engine.wait();
}
