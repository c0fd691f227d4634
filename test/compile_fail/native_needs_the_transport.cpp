// expect: tutti: collective::native is the transport's own all-reduce, but this transport has none. Fix: use collective::ring, or transport::mpi.
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/collective/native.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/tutti.hpp"

#ifdef GOOD
using algorithm = tutti::collective::ring;
#else
using algorithm = tutti::collective::native;
#endif

using Strategy = tutti::compose<tutti::architecture::all_reduce<algorithm>>;

void train(tutti::engine<Strategy, tutti::transport::in_process, tutti::optimizer::none>& engine) {
  engine.wait();
}
