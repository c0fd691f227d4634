// expect: tutti: this collective or transport matches messages by the order in which ranks start them, but by this coordination each rank starts them in an order of its own. Fix: leave the coordination out, or use coordination::leader, or schedule::in_order.
#include <span>
#include <string>

#include "tutti/base/host_stream.hpp"
#include "tutti/coordination/leader.hpp"
#include "tutti/coordination/local.hpp"
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
using Strategy = tutti::compose<tutti::coordination::leader>;
#else
using Strategy = tutti::compose<tutti::coordination::local>;
#endif

using network = tutti::transport::stream_ordered<library, tutti::transport::in_process>;

void train(tutti::engine<Strategy, network, tutti::optimizer::none>& engine) { engine.wait(); }
