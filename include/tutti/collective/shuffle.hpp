#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/base/all_of.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/task.hpp"
#include "tutti/collective/rows.hpp"
#include "tutti/role/collective.hpp"
#include "tutti/role/transport.hpp"

namespace tutti::collective {

/// Which ranks may own shards, that is, add them up.
enum class gather_at {
  hosts,  ///< the first rank of each host
  ranks,  ///< every rank: the first rank of each host, then the second of each
};

/// Data is cut in shards. Every rank sends each shard to the rank that owns it, which adds it up
/// and sends the sum to all. Which ranks own shards changes from chunk to chunk, in turns.
/// Wire: the bytes from every rank, less the shards that it owns, and p-1 times each shard from its
/// owner; 2(p-1) messages a shard. Cost: the fewest steps; if there are few shards, their owners'
/// links are the bottleneck; a look at every rank's host.
/// After: TensorFlow's build_shuffle_all_reduce, tf_cnn_benchmarks' `pscpu#shards`, where the
/// hosts' CPUs add up, and `psgpu#shards`. Those refuse more shards than places, and their last
/// shard is the shorter one; here the number of shards is then the number of places, and shards
/// differ by at most one element.
template <gather_at Where>
class shuffle {
 public:
  using role = tutti::role::collective;
  static constexpr bool rank_ordered = false;
  static constexpr bool ordered_start = false;

  struct options {
    std::uint64_t shards{1};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("shards", self.shards, "parts of a chunk, each added up by one rank");
    }
  };

  constexpr shuffle() = default;
  /// Throws usage_error for no shard at all.
  explicit constexpr shuffle(const options& values) : options_(values) {
    if (values.shards == 0) {
      throw usage_error("collective::shuffle: shards must not be 0. Fix: use at least 1");
    }
  }

  std::size_t scratch_bytes(std::size_t, std::size_t, int) const { return 0; }
  std::uint64_t route_of(const named_piece& piece) const { return piece.turn; }

  template <class Endpoint, class Fold>
  task all_reduce(Endpoint self, reduction<Fold> data) const {
    return through(options_.shards, self, data);
  }

 private:
  template <class Endpoint, class Fold>
  static task through(std::uint64_t shards, Endpoint self, reduction<Fold> data) {
    frame_array<int> places(at(self.size()));
    list(places, self);
    const std::size_t parts = std::min<std::uint64_t>(shards, places.size());
    const std::size_t groups = (places.size() + parts - 1) / parts;
    const auto owner = [&](std::size_t part) {
      return places[(data.route % groups + part * groups) % places.size()];
    };
    frame_array<std::size_t> own(parts);  // a rank may own two where places do not divide evenly
    frame_array<std::size_t> others(parts);
    for (std::size_t part = 0; part < parts; ++part) {
      (owner(part) == self.rank() ? own : others).add([&] { return part; });
    }
    const std::size_t peers = at(self.size() - 1);
    const auto part_from = [&](std::size_t index) { return data.part(parts, own[index / peers]); };
    const auto from = [&](std::size_t index) { return peer(self, index % peers); };
    const std::size_t sums = own.size() * peers;
    {
      operations loans(is_stream_ordered<typename Endpoint::transport_type> ? sums : 0,
                       [&](std::size_t index) {
                         return self.receive_loan(from(index), part_from(index).size());
                       });
      operations sends(others.size(), [&](std::size_t index) {
        return self.send(owner(others[index]), data.part(parts, others[index]));
      });
      co_await all_of(sends, add(self, loans, sums, from, part_from, data.fold));
    }
    operations receives(others.size(), [&](std::size_t index) {
      return self.receive(owner(others[index]), data.part(parts, others[index]));
    });
    operations sends(sums,
                     [&](std::size_t index) { return self.send(from(index), part_from(index)); });
    co_await all_of(sends, all_of(receives));
  }

  /// Adds all other ranks' contributions to this rank's shards, by ascending rank. On a stream all
  /// messages begin together, so they are loans; on other transports they are added out of the
  /// peers' memory, one by one.
  template <class Endpoint, class Loans, class From, class PartFrom, class Fold>
  static task add(Endpoint self, Loans& loans, std::size_t sums, From from, PartFrom part_from,
                  Fold fold) {
    for (std::size_t index = 0; index < sums; ++index) {
      const std::span<std::byte> own = part_from(index);
      if constexpr (is_stream_ordered<typename Endpoint::transport_type>) {
        auto& next = loans.next();
        const auto theirs = co_await next;
        fold(self.queue(), own.data(), theirs.bytes().data(), own.size());
      } else {
        co_await self.receive_fold(from(index), own, fold);
      }
    }
  }

  /// The other rank with this index, by ascending rank.
  template <class Endpoint>
  static int peer(const Endpoint& self, std::size_t index) {
    return static_cast<int>(index) + (static_cast<int>(index) < self.rank() ? 0 : 1);
  }

  /// Lists the ranks that may own shards.
  template <class Endpoint>
  static void list(frame_array<int>& places, const Endpoint& self) {
    const detail::rows hosts(self.rank(), self.size(),
                             [&](int rank) { return self.host_of(rank); });
    const int most = Where == gather_at::hosts ? 1 : hosts.longest();
    for (int place = 0; place < most; ++place) {
      for (int rank = 0; rank < self.size(); ++rank) {
        if (hosts.place(rank) == place) {
          places.add([&] { return rank; });
        }
      }
    }
  }

  options options_{};
};
static_assert(collective_policy<shuffle<gather_at::hosts>>);

}  // namespace tutti::collective
