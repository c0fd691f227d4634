// expect: tutti: concurrent coroutines begin their messages in two groups, but this transport moves one group of messages at a time. Fix: begin all of them in one coroutine before it awaits the first, and await them by all_of.
#include <span>
#include <string>

#include "tutti/base/host_stream.hpp"
#include "tutti/collective/exchange_with_all.hpp"
#include "tutti/role/transport.hpp"
#include "tutti/transport/in_process.hpp"
#include "tutti/transport/stream_ordered.hpp"

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

using network = tutti::transport::stream_ordered<library, tutti::transport::in_process>;

tutti::task swap_all(tutti::endpoint<network> self, std::span<const std::byte> mine) {
  const auto to = [mine](int) { return mine; };
  const auto take = [](int, std::span<const std::byte>) {};
#ifdef GOOD
  const auto bytes = [mine](int) { return mine.size(); };
  co_await tutti::collective::exchange_with_all(self, to, bytes, take);
#else
  tutti::task beside = tutti::collective::send_to_all(self, mine);
  self.start(beside);
  co_await beside;
  take(0, to(0));
#endif
}
