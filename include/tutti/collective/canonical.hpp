#pragma once

#include <optional>

#include "tutti/base/all_of.hpp"
#include "tutti/base/cost.hpp"
#include "tutti/collective/exchange_with_all.hpp"
#include "tutti/collective/fan_out.hpp"
#include "tutti/role/collective.hpp"
#include "tutti/role/transport.hpp"

namespace tutti::collective {

/// Every rank adds up its part of all ranks' data in rank order, then sends the sum to all.
/// Wire: 2(p-1)/p of the bytes from every rank, as in a ring; 2(p-1) messages, those of each half
/// at once. Cost: scratch of one part. The sum is bitwise the same under every fusion, schedule and
/// transport.
struct canonical {
  using role = tutti::role::collective;
  static constexpr bool rank_ordered = true;
  static constexpr bool ordered_start = false;

  /// Known only if each rank has a host of its own: messages inside a host pass no NIC.
  static constexpr std::optional<exchange_cost> alone(int ranks, int per_host, std::size_t) {
    return per_host == 1
               ? std::optional<exchange_cost>({ranks == 1 ? 0.0 : 2.0, 2.0 * (ranks - 1) / ranks})
               : std::nullopt;
  }
  std::size_t scratch_bytes(std::size_t elements, std::size_t element_bytes, int ranks) const {
    return (elements / at(ranks) + 1) * element_bytes;
  }

  template <class Endpoint, class Fold>
  task reduce_scatter(Endpoint self, reduction<Fold> data) const {
    const auto part_of = [data, ranks = at(self.size())](int peer) {
      return std::span<const std::byte>(data.part(ranks, at(peer)));
    };
    if constexpr (is_stream_ordered<typename Endpoint::transport_type>) {
      co_await add_at_once(self, data, part_of);
    } else {
      auto sends =
          begin_with_others(self, [&](int peer) { return self.send(peer, part_of(peer)); });
      co_await all_of(sends, add_in_rank_order(self, data));
    }
  }

  template <class Endpoint, class Fold>
  task all_gather(Endpoint self, reduction<Fold> data) const {
    const std::size_t ranks = at(self.size());
    const auto mine = data.part(ranks, at(self.rank()));
    auto exchanges = begin_with_others(self, [&](int peer) {
      return self.exchange(peer, mine, peer, data.part(ranks, at(peer)));
    });
    co_await all_of(exchanges);
  }

  template <class Endpoint, class Fold>
  task all_reduce(Endpoint self, reduction<Fold> data) const {
    co_await reduce_scatter(self, data);
    co_await all_gather(self, data);
  }

 private:
  /// Adds up this rank's part in rank order, out of loans. On a stream all messages must begin
  /// together, but a message that is folded cannot begin before the previous one has been folded.
  template <class Endpoint, class Fold, class PartOf>
  static task add_at_once(Endpoint self, reduction<Fold> data, PartOf part_of) {
    const auto mine = data.part(at(self.size()), at(self.rank()));
    const bool in_place = self.rank() < 2;
    const auto sum = in_place ? mine : data.scratch.first(mine.size());
    auto& queue = self.queue();
    const auto take = [&](int rank, std::span<const std::byte> theirs) {
      const bool own = rank == self.rank();
      const std::byte* from = own ? mine.data() : theirs.data();
      if (rank == 0 && !in_place) {
        queue.copy(sum.data(), from, sum.size());
      } else if (!own || !in_place) {
        data.fold(queue, sum.data(), from, sum.size());
      }
    };
    const auto bytes_from = [bytes = mine.size()](int) { return bytes; };
    co_await exchange_with_all(self, part_of, bytes_from, take);
    if (sum.data() != mine.data()) {
      queue.copy(mine.data(), sum.data(), mine.size());
    }
  }

  template <class Endpoint, class Fold>
  static task add_in_rank_order(Endpoint self, reduction<Fold> data) {
    const auto mine = data.part(at(self.size()), at(self.rank()));
    // The first two terms may be swapped, so ranks 0 and 1 add in place; each other rank needs the
    // sum of the terms before its own first.
    const bool in_place = self.rank() < 2;
    const auto sum = in_place || data.data == nullptr ? mine : data.scratch.first(mine.size());
    for (int peer = 0; peer < self.size(); ++peer) {
      if (peer != self.rank()) {
        if (peer == 0 && !in_place) {
          co_await self.receive(peer, sum);
        } else {
          co_await self.receive_fold(peer, sum, data.fold);
        }
      } else if (!in_place && data.data != nullptr) {
        data.fold(self.queue(), sum.data(), mine.data(), mine.size());
      }
    }
    if (sum.data() != mine.data()) {
      self.queue().copy(mine.data(), sum.data(), mine.size());
    }
  }
};
static_assert(collective_policy<canonical>);

}  // namespace tutti::collective
