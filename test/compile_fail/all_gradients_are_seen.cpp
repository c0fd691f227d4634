// expect: tutti: this optimizer needs the mean gradients of a whole step before it updates a tensor, but under this architecture they are updated one by one, elsewhere or a step late. Fix: use architecture::replicated or servers that add and leave updates to workers, or clip each worker's gradients before they are sent.
#include "tutti/architecture/local_sgd.hpp"
#include "tutti/optimizer/clipped.hpp"
#include "tutti/tutti.hpp"

#ifdef GOOD
using strategy = tutti::compose<>;
#else
using strategy = tutti::compose<tutti::architecture::local_sgd<> >;
#endif

void train(tutti::transport::in_process& world) {
  auto engine =
      tutti::make_engine<strategy>(world, {}, tutti::optimizer::clipped<tutti::optimizer::sgd>{});
  engine.wait();
}
