// expect: tutti: this architecture updates the parameters where they are owned, but it was given no optimizer. Fix: pass one to make_engine, or use updated_by::workers.
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
