// expect: tutti: this architecture receives from whoever sends first, but this transport's messages carry no sender and match in one order. Fix: use architecture::replicated, or transport::mpi.
#include "stream_ordered_network.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/tutti.hpp"

#ifdef GOOD
using Strategy = tutti::compose<>;
#else
using Strategy = tutti::compose<tutti::architecture::parameter_server<> >;
#endif

void train(tutti::engine<Strategy, network, tutti::optimizer::none>& engine) { engine.wait(); }
