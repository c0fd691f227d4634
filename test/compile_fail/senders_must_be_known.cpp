// expect: tutti: this architecture receives from whoever sends first, but this transport's messages carry no sender and match in one order. Fix: use architecture::replicated, or transport::mpi.
#include <span>
#include <string>

#include "tutti/architecture/parameter_server.hpp"
#include "tutti/base/host_stream.hpp"
#include "tutti/transport/stream_ordered.hpp"
#include "tutti/tutti.hpp"

struct library {
  using queue_type = tutti::host_stream;
  explicit library(tutti::transport::in_process&);
  queue_type& queue();
  void begin_group();
  void send(std::span<const std::byte>, int);
  void receive(std::span<std::byte>, int);
  void end_group();
  void all_reduce(std::span<float>);
  std::string failure();
  void abort();
};

#ifdef GOOD
using Strategy = tutti::compose<>;
#else
using Strategy = tutti::compose<tutti::architecture::parameter_server<> >;
#endif

using network = tutti::transport::stream_ordered<library, tutti::transport::in_process>;

void train(tutti::engine<Strategy, network, tutti::optimizer::none>& engine) { engine.wait(); }
