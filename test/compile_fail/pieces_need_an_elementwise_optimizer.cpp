// expect: tutti: this architecture updates pieces of tensors, on their owner, but this optimizer needs whole tensors. Fix: updated_by::workers, or an optimizer that is elementwise.
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/tutti.hpp"

/// A rate for each tensor, by its norm.
struct layerwise : tutti::optimizer::sgd {
  static constexpr bool elementwise = false;
};
static_assert(tutti::optimizer_policy<layerwise>);

#ifdef GOOD
using who = tutti::updated_by::workers;
#else
using who = tutti::updated_by::servers;
#endif
using strategy =
    tutti::compose<tutti::architecture::parameter_server<tutti::consistency::synchronous, who>>;

void train(tutti::engine<strategy, tutti::transport::in_process, layerwise>& engine) {
  engine.wait();
}
