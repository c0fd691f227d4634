// expect: tutti: this optimizer adds up norms on the host, but over this transport gradients lie on a device. Fix: transport::in_process or mpi in host memory, or an optimizer that updates tensors one by one.
#include "tutti/base/host_stream.hpp"
#include "tutti/optimizer/clipped.hpp"
#include "tutti/transport/in_process.hpp"
#include "tutti/tutti.hpp"

#ifdef GOOD
using network = tutti::transport::in_process;
#else
using network =
    tutti::transport::basic_in_process<tutti::host_stream, tutti::transport::by_mailbox>;
#endif

void train(network& world) {
  auto engine = tutti::make_engine<tutti::compose<>>(
      world, {}, tutti::optimizer::clipped<tutti::optimizer::sgd>{});
  engine.wait();
}
