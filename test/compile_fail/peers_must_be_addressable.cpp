// expect: tutti: this collective reads its peers' memory, but this transport cannot. Fix: use collective::ring, or transport::in_process.
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/collective/addressable.hpp"
#include "tutti/transport/any_transport.hpp"
#include "tutti/tutti.hpp"

using in_place = tutti::compose<tutti::architecture::all_reduce<tutti::collective::addressable>>;

#ifdef GOOD
using network = tutti::transport::in_process;
#else
using network = tutti::transport::any_transport;
#endif

void train(tutti::engine<in_place, network, tutti::optimizer::none>& engine) { engine.wait(); }
