#pragma once

#include <algorithm>

#include "tutti/base/bounds.hpp"
#include "tutti/collective/exchange_with_all.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/collective.hpp"

namespace tutti::architecture {

/// Every rank owns a part of each chunk: it decodes and adds everybody's payload of that part in
/// rank order, encodes the mean again, and sends it to all.
/// Wire: 2(p-1)/p of the payload from every rank, for any compressor. Cost: encoded twice; with
/// error feedback there is a residual at either end, and nothing is lost.
/// After: Tang et al., "1-bit Adam", ICML 2021; Wang et al., "ZeRO++", 2023.
struct reduce_scatter_all_gather {
  using role = tutti::role::architecture;
  static constexpr bool adds_payloads = false;
  static constexpr bool completes_alone = false;

  static constexpr double busiest_card(double payload, double, placement who) {
    return bound::compressed_all_reduce(payload, who.workers, who.per_host);
  }
  static constexpr exchange_cost alone(placement who) {
    return {2, bound::compressed_all_reduce(1, who.workers, who.per_host)};
  }

  template <class Compression>
  std::size_t workspace_bytes(const Compression& compression, std::size_t elements,
                              int ranks) const {
    return at(ranks) * slot(compression, elements, ranks);
  }

  template <class Endpoint, class Parcel>
  task exchange(Endpoint self, Parcel parcel) const {
    const parts<Parcel> cut{parcel, self.size()};
    auto& queue = self.queue();
    for (int rank = 0; rank < self.size(); ++rank) {
      parcel.encode(queue, cut.begin(rank), cut.elements(rank), cut.payload(rank));
    }
    const auto payload_for = [cut](int rank) {
      return std::span<const std::byte>(cut.payload(rank));
    };
    const int mine = self.rank();
    const auto bytes_of_mine = [cut, mine](int) { return cut.payload(mine).size(); };
    const auto add = [&](int rank, std::span<const std::byte> theirs) {
      parcel.accumulate(queue, rank == mine ? cut.payload(mine) : theirs, cut.begin(mine),
                        cut.elements(mine));
    };
    parcel.clear(queue, cut.begin(mine), cut.elements(mine));
    co_await collective::exchange_with_all(self, payload_for, bytes_of_mine, add);
    parcel.scale(queue, cut.begin(mine), cut.elements(mine));
    parcel.encode_mean(queue, cut.begin(mine), cut.elements(mine), cut.payload(mine));
    const auto mean_of_mine = [cut, mine](int) {
      return std::span<const std::byte>(cut.payload(mine));
    };
    const auto bytes_from = [cut](int rank) { return cut.payload(rank).size(); };
    const auto decode = [&](int rank, std::span<const std::byte> theirs) {
      parcel.clear(queue, cut.begin(rank), cut.elements(rank));
      parcel.accumulate(queue, rank == mine ? cut.payload(mine) : theirs, cut.begin(rank),
                        cut.elements(rank));
    };
    co_await collective::exchange_with_all(self, mean_of_mine, bytes_from, decode);
  }

 private:
  template <class Parcel>
  struct parts {
    Parcel whole;
    int ranks;

    std::size_t begin(int rank) const { return part_begin(whole.data.size(), at(ranks), at(rank)); }
    std::size_t elements(int rank) const { return begin(rank + 1) - begin(rank); }
    std::span<std::byte> payload(int rank) const {
      const std::size_t bytes = whole.wire_bytes(elements(rank));
      if (whole.phantom()) {
        return {static_cast<std::byte*>(nullptr), bytes};
      }
      const std::size_t place = at(rank) * slot(*whole.compression, whole.data.size(), ranks);
      return whole.workspace.subspan(place, bytes);
    }
  };

  template <class Compression>
  static std::size_t slot(const Compression& compression, std::size_t elements, int ranks) {
    const std::size_t longest = part_begin(elements, at(ranks), 1);
    return round_up(
        std::max(compression.wire_bytes(longest), relay(compression).wire_bytes(longest)), 64);
  }
};
static_assert(architecture_policy<reduce_scatter_all_gather>);

}  // namespace tutti::architecture
