#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "tutti/base/bounds.hpp"
#include "tutti/collective/fan_out.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/kernels/counted_random.hpp"
#include "tutti/kernels/votes.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/collective.hpp"

namespace tutti::architecture {

/// What an even number of voters elects who do not agree: +1, or one of the two by chance.
enum class tie { positive, by_chance };

/// In the order of the enumerators.
constexpr std::array<std::string_view, 2> names(tie) { return {"positive", "by_chance"}; }

/// What a rank's vote is where no other has one.
enum class single_voter {
  votes,        ///< as many do
  is_believed,  ///< what it would have voted on is applied, with its magnitude
};
constexpr std::array<std::string_view, 2> names(single_voter) { return {"votes", "is_believed"}; }

/// Every rank sends one vote an element to rank 0, itself a voter, which sends the majority back.
/// The outcome stands for the mean: an optimizer's weight decay comes after the vote. A tie is +1
/// as published, which pulls every element one way where voters are even; `by_chance` it is
/// unbiased: an even number of voters is joined by a ballot of random votes, which decides ties
/// alone. In the published program one that trains alone is_believed: its momentum is applied.
/// Wire: one payload from every rank to rank 0 and one back. Cost: rank 0's link, 2(p-1)
/// payloads. After: Bernstein et al., "signSGD with Majority Vote", 2018.
struct majority_vote {
  using role = tutti::role::architecture;
  static constexpr bool adds_payloads = false;
  static constexpr bool completes_alone = false;
  static constexpr bool counts_votes = true;

  struct options {
    architecture::tie tie{architecture::tie::positive};
    std::uint64_t seed{1};
    architecture::single_voter single{architecture::single_voter::votes};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit(
          "tie", self.tie,
          "how a tie of an even number of voters is decided: positive, as published, or by_chance");
      visit("seed", self.seed, "seed that decides ties by chance");
      visit("single", self.single,
            "a rank that trains alone: votes, or is_believed, as published, so that its momentum "
            "is applied");
    }
  };

  /// Rank 0's host receives the ballots of all that live elsewhere.
  static constexpr double busiest_nic(double payload, double, placement who) {
    return bound::gather(payload, who.workers, who.per_host);
  }
  static constexpr exchange_cost alone(placement who) {
    return {2, 2 * bound::gather(1, who.workers, who.per_host), who.workers - 1.0};
  }

  template <class World>
  class state {
   public:
    state(World& world, const options& set)
        : world_(&world),
          has_ballot_of_chance_(set.tie == tie::by_chance && world.size() % 2 == 0),
          is_believed_(set.single == single_voter::is_believed && world.size() == 1),
          random_(set.seed) {}

    std::size_t workspace_bytes(std::size_t elements) const {
      return at(ballots()) * slot(world_->compressor(), elements);
    }

    task exchange(typename World::endpoint self, const typename World::launch& what) {
      auto& queue = self.queue();
      const std::size_t elements = what.data.size();
      const auto mine = ballot(what, self.rank());
      what.encode(queue, 0, elements, mine);
      if (is_believed_) {
        believe(queue, what);
        co_return;
      }
      if (self.rank() != 0) {
        co_await self.send(0, mine);
        co_await self.receive(0, mine);
      } else {
        for (int rank = 1; rank < self.size(); ++rank) {
          co_await self.receive(rank, ballot(what, rank));
        }
        if (has_ballot_of_chance_) {
          cast_by_chance(queue, what, ballot(what, self.size()));
        }
        count(queue, what, ballots());
        co_await collective::send_to_all(self, mine);
      }
      what.decode(queue, mine, 0, elements);
    }

   private:
    int ballots() const { return world_->size() + (has_ballot_of_chance_ ? 1 : 0); }

    /// Whoever votes on something else than the gradient says on what.
    template <class Queue>
    static void believe(Queue& queue, const typename World::launch& what) {
      if (what.phantom()) {
        return;
      }
      if constexpr (requires { what.compression->voted_on(queue, what.data, what.worker); }) {
        what.compression->voted_on(queue, what.data, what.worker);
      }
      kernels::scale(queue, what.data, what.average);
    }

    template <class Queue>
    void cast_by_chance(Queue& queue, const typename World::launch& what,
                        std::span<std::byte> votes) const {
      charge(queue, votes.size());
      if (!what.phantom()) {
        const wire out{votes.data(), votes.size()};
        kernels::draw_words(queue, out.as<std::uint32_t>(),
                            random_.stream(what.worker.step).stream(what.worker.drawn_from()));
      }
    }

    World* world_;
    bool has_ballot_of_chance_;
    bool is_believed_;
    kernels::counted_random random_;
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
