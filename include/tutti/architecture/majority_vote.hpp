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

/// The result of a tied vote, among an even number of voters: +1, or a sign drawn at random.
enum class tie { positive, by_chance };

/// Returns the enumerators' names, in their order.
constexpr std::array<std::string_view, 2> names(tie) { return {"positive", "by_chance"}; }

/// What a rank that trains alone applies.
enum class single_voter {
  votes,        ///< the signs it votes for, as with several voters
  is_believed,  ///< the values behind those signs, with their magnitudes
};
constexpr std::array<std::string_view, 2> names(single_voter) { return {"votes", "is_believed"}; }

/// Every rank sends one vote (a sign) an element to rank 0, itself a voter, which sends the
/// majority back. The optimizer takes the result for the mean gradient, so its weight decay comes
/// after the vote. As published, a tie counts as +1, which biases every element in one direction
/// where the number of voters is even. With tie::by_chance the result is unbiased: a ballot of
/// random votes joins an even number of voters, and decides only ties. In the published program a
/// rank that trains alone is believed (single_voter::is_believed): its momentum is applied.
/// Wire: one payload from every rank to rank 0 and one back.
/// Cost: rank 0's link carries 2(p-1) payloads.
/// After: Bernstein et al., "signSGD with Majority Vote", 2018.
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

  /// Returns what rank 0's host receives: the ballots of all ranks on other hosts.
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
      what.decode_result(queue, mine, 0, elements);
    }

   private:
    int ballots() const { return world_->size() + (has_ballot_of_chance_ ? 1 : 0); }

    /// Leaves in the launch the values that this rank would have voted on. A compressor that votes
    /// on something other than the gradient supplies them by `voted_on`.
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

  /// Replaces rank 0's ballot by the majority of all ballots.
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
