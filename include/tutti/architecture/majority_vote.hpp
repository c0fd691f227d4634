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
  static constexpr double busiest_nic(double payload, double, placement who) {
    return bound::gather(payload, who.workers, who.per_host);
  }
  static constexpr exchange_cost alone(placement who) {
    return {2, 2 * bound::gather(1, who.workers, who.per_host)};
  }

  template <class World>
  class state {
   public:
    state(World& world, const no_options&) : world_(&world) {}

    std::size_t workspace_bytes(std::size_t elements) const {
      return at(world_->size()) * slot(world_->compressor(), elements);
    }

    task exchange(typename World::endpoint self, const typename World::launch& what) {
      auto& queue = self.queue();
      const std::size_t elements = what.data.size();
      const auto mine = ballot(what, self.rank());
      what.encode(queue, 0, elements, mine);
      if (self.rank() != 0) {
        co_await self.send(0, mine);
        co_await self.receive(0, mine);
      } else {
        for (int rank = 1; rank < self.size(); ++rank) {
          co_await self.receive(rank, ballot(what, rank));
        }
        count(queue, what, self.size());
        co_await collective::send_to_all(self, mine);
      }
      what.clear(queue, 0, elements);
      what.accumulate(queue, mine, 0, elements);
    }

   private:
    World* world_;
  };

 private:
  template <class Compression>
  static std::size_t slot(const Compression& compression, std::size_t elements) {
    return round_up(compression.wire_bytes(elements), 64);
  }

  template <class Launch>
  static std::span<std::byte> ballot(const Launch& what, int rank) {
    const std::size_t bytes = what.capacity();
    if (what.phantom()) {
      return {static_cast<std::byte*>(nullptr), bytes};
    }
    return what.workspace.subspan(at(rank) * slot(*what.compression, what.data.size()), bytes);
  }

  /// The majority takes the place of rank 0's ballot.
  template <class Queue, class Launch>
  static void count(Queue& queue, const Launch& what, int ranks) {
    charge(queue, (at(ranks) + 1) * what.capacity());
    if (what.phantom()) {
      return;
    }
    const auto mine = ballot(what, 0);
    const payload_row ballots{mine.data(), slot(*what.compression, what.data.size()), at(ranks),
                              mine.size()};
    what.compression->vote(queue, ballots, wire{mine.data(), mine.size()});
  }
};
static_assert(architecture_policy<majority_vote>);

}  // namespace tutti::architecture
