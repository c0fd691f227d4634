// expect: tutti: this architecture updates the parameters itself, on their owner or before it sends them, but it was given no optimizer. Fix: pass one to make_engine.
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/tutti.hpp"

using on_servers =
    tutti::compose<tutti::architecture::parameter_server<tutti::consistency::synchronous,
                                                         tutti::updated_by::servers>>;

#ifdef GOOD
using updating = tutti::optimizer::sgd;
#else
using updating = tutti::optimizer::none;
#endif

void train(tutti::engine<on_servers, tutti::transport::in_process, updating>& engine) {
  engine.wait();
}
