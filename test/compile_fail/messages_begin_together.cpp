// expect: tutti: concurrent coroutines begin their messages in two groups, but this transport moves one group of messages at a time. Fix: begin all of them in one coroutine before it awaits the first, and await them by all_of.
#include <span>

#include "stream_ordered_network.hpp"
#include "tutti/collective/exchange_with_all.hpp"
#include "tutti/role/transport.hpp"

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
