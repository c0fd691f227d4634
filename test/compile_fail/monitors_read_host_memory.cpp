// expect: tutti: this monitor reads gradients or parameters, but over this transport they lie on a device. Fix: use monitor::stragglers, counters or timeline, or transport::in_process or mpi in host memory.
#include "tutti/base/host_stream.hpp"
#include "tutti/monitor/variance.hpp"
#include "tutti/transport/in_process.hpp"
#include "tutti/tutti.hpp"

#ifdef GOOD
using network = tutti::transport::in_process;
#else
using network =
    tutti::transport::basic_in_process<tutti::host_stream, tutti::transport::by_mailbox>;
#endif

void train(network& world, tutti::monitor::variance& watching) {
  auto engine = tutti::make_engine<tutti::compose<>>(world, {}, tutti::optimizer::sgd{}, {},
                                                     std::move(watching));
  engine.wait();
}
