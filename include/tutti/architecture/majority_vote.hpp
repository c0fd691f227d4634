#pragma once

#include "tutti/base/bounds.hpp"
#include "tutti/collective/fan_out.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/collective.hpp"

namespace tutti::architecture {

/// Every rank sends one vote an element to rank 0, itself a voter, which sends the majority back.
/// A tie is +1. The outcome stands for the mean: an optimizer's weight decay comes after the vote.
/// Wire: one payload from every rank to rank 0 and one back. Cost: rank 0's link, 2(p-1) payloads.
/// After: Bernstein et al., "signSGD with Majority Vote", 2018.
struct majority_vote {
  using role = tutti::role::architecture;
  static constexpr bool adds_payloads = false;
  static constexpr bool completes_alone = false;
  static constexpr bool counts_votes = true;

  /// Rank 0's host receives the ballots of all that live elsewhere.
  static constexpr double busiest_card(double payload, double, placement who) {
    return bound::gather(payload, who.workers, who.per_host);
  }
  static constexpr exchange_cost alone(placement who) {
    return {2, 2 * bound::gather(1, who.workers, who.per_host)};
  }

  template <class Compression>
  std::size_t workspace_bytes(const Compression& compression, std::size_t elements,
                              int ranks) const {
    return at(ranks) * slot(compression, elements);
  }

  template <class Endpoint, class Parcel>
  task exchange(Endpoint self, Parcel parcel) const {
    auto& queue = self.queue();
    const std::size_t elements = parcel.data.size();
    const auto mine = ballot(parcel, self.rank());
    parcel.encode(queue, 0, elements, mine);
    if (self.rank() != 0) {
      co_await self.send(0, mine);
      co_await self.receive(0, mine);
    } else {
      for (int rank = 1; rank < self.size(); ++rank) {
        co_await self.receive(rank, ballot(parcel, rank));
      }
      count(queue, parcel, self.size());
      co_await collective::send_to_all(self, mine);
    }
    parcel.clear(queue, 0, elements);
    parcel.accumulate(queue, mine, 0, elements);
  }

 private:
  template <class Compression>
  static std::size_t slot(const Compression& compression, std::size_t elements) {
    return round_up(compression.wire_bytes(elements), 64);
  }

  template <class Parcel>
  static std::span<std::byte> ballot(const Parcel& parcel, int rank) {
    const std::size_t bytes = parcel.wire_bytes();
    if (parcel.phantom()) {
      return {static_cast<std::byte*>(nullptr), bytes};
    }
    return parcel.workspace.subspan(at(rank) * slot(*parcel.compression, parcel.data.size()),
                                    bytes);
  }

  /// The majority takes the place of rank 0's ballot.
  template <class Queue, class Parcel>
  static void count(Queue& queue, const Parcel& parcel, int ranks) {
    charge(queue, (at(ranks) + 1) * parcel.wire_bytes());
    if (parcel.phantom()) {
      return;
    }
    const auto mine = ballot(parcel, 0);
    const payload_row ballots{mine.data(), slot(*parcel.compression, parcel.data.size()), at(ranks),
                              mine.size()};
    parcel.compression->vote(queue, ballots, wire{mine.data(), mine.size()});
  }
};
static_assert(architecture_policy<majority_vote>);

}  // namespace tutti::architecture
