#pragma once

#include <cstddef>
#include <exception>
#include <span>
#include <utility>

#include "tutti/base/task.hpp"
#include "tutti/collective/fan_out.hpp"
#include "tutti/role/transport.hpp"

namespace tutti::collective {

namespace detail {

template <class Endpoint, class BytesFrom, class Take>
task take_in_rank_order(Endpoint self, BytesFrom bytes_from, Take take) {
  for (int rank = 0; rank < self.size(); ++rank) {
    if (rank == self.rank()) {
      take(rank, std::span<const std::byte>{});
    } else {
      const auto theirs = co_await self.receive_loan(rank, bytes_from(rank));
      take(rank, theirs.bytes());
    }
  }
}

/// The highest rank's messages begin first and are awaited last: all have begun when the first is
/// awaited, and are taken in rank order. A frame a peer, as in fan_out.
template <class Endpoint, class BytesFor, class BytesFrom, class Take>
task exchange_at_once(Endpoint self, BytesFor bytes_for, BytesFrom bytes_from, Take take,
                      int rank) {
  if (rank < 0) {
    co_return;
  }
  if (rank == self.rank()) {
    co_await exchange_at_once(self, bytes_for, bytes_from, take, rank - 1);
    take(rank, std::span<const std::byte>{});
    co_return;
  }
  auto out = self.send(rank, bytes_for(rank));
  auto in = self.receive_loan(rank, bytes_from(rank));
  co_await exchange_at_once(self, bytes_for, bytes_from, take, rank - 1);
  const auto theirs = co_await in;
  take(rank, theirs.bytes());
  co_await out;
}

/// To and from `rank` and those below.
template <class Endpoint, class PartOf>
task spread_to(Endpoint self, std::span<const std::byte> mine, PartOf part_of, int rank) {
  if (rank < 0) {
    co_return;
  }
  if (rank == self.rank()) {
    co_await spread_to(self, mine, part_of, rank - 1);
    co_return;
  }
  auto both = self.exchange(rank, mine, rank, part_of(rank));
  co_await spread_to(self, mine, part_of, rank - 1);
  co_await both;
}

}  // namespace detail

/// Sends `bytes_for(peer)` to every other rank and shows `take(rank, bytes)` in rank order what
/// each has sent, `bytes_from(rank)` of them; in this rank's own turn, nothing.
template <class Endpoint, class BytesFor, class BytesFrom, class Take>
task exchange_with_all(Endpoint self, BytesFor bytes_for, BytesFrom bytes_from, Take take) {
  if constexpr (is_stream_ordered<typename Endpoint::transport_type>) {
    co_await detail::exchange_at_once(self, bytes_for, bytes_from, take, self.size() - 1);
  } else {
    co_await beside(self, fan_out(self, bytes_for),
                    detail::take_in_rank_order(self, bytes_from, take));
  }
}

/// Sends `mine` to every other rank and receives `part_of(rank)` from each, all of it begun before
/// anything is awaited.
template <class Endpoint, class PartOf>
task spread_at_once(Endpoint self, std::span<const std::byte> mine, PartOf part_of) {
  return detail::spread_to(self, mine, part_of, self.size() - 1);
}

}  // namespace tutti::collective
