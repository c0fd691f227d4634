// expect: tutti: this monitor looks at the mean gradients of every step, but this architecture makes none on its workers. Fix: use monitor::variance or consensus_distance, or an architecture whose workers update, as architecture::replicated.
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
