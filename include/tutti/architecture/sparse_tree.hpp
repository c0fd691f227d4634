#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tutti/base/options.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/architecture.hpp"

namespace tutti::architecture {

/// Who remembers the elements that a rank has selected and a merge leaves out.
enum class give_back {
  exact,       ///< the rank that merges, so that nothing is lost
  compatible,  ///< the rank that selected them, unless the final selection has the element
};
constexpr std::array<std::string_view, 2> names(give_back) { return {"exact", "compatible"}; }

/// Ranks merge their selections along a binomial tree. In round i every second one of the ranks
/// that are left sends its selection to the rank 2^i below, which adds it to its own and selects
/// again as many elements. The selection that rank 0 ends with goes back along the tree and is
/// taken for the sum.
///
/// `give_back::exact` is this library's own: contributions = applied + residuals, over all ranks.
/// `give_back::compatible` is the original's: a rank takes back its own selection where the element
/// is not in the final selection. So a value that a merge left out is lost if its element is in the
/// final selection by way of other ranks: with 8 ranks and a tenth selected about 5 % of all
/// magnitudes, with two ranks nothing.
///
/// Deviations: any number of ranks may take part, where the original wants a power of two. Of equal
/// magnitudes the lower index wins, where the original's choice depends on a sort. Sums are floats,
/// where the original's are doubles after the first round, on the wire too.
/// Wire: one payload from every rank up and one down, one after the other in 2 ceil(log2(p))
/// rounds.
/// Cost: on a rank that merges, two binary searches and five reads for each pair of index and
/// value; scratch for about seven payloads.
/// After: Shi et al., "A Distributed Synchronous SGD Algorithm with Global Top-k Sparsification for
/// Low Bandwidth Networks", ICDCS 2019, and its code.
struct sparse_tree {
  using role = tutti::role::architecture;
  static constexpr bool adds_payloads = false;
  static constexpr bool completes_alone = false;
  static constexpr bool merges_payloads = true;

  struct options {
    architecture::give_back give_back{architecture::give_back::exact};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("give_back", self.give_back,
            "elements that a merge leaves out: kept by the rank that merges (exact), or treated as "
            "in the original, which loses some (compatible)");
    }
  };

  /// Returns what the first host receives: the payloads of all ranks on other hosts whose parent is
  /// on the first.
  static constexpr double busiest_nic(double payload, double, placement who) {
    int received = 0;
    for (int rank = who.per_host; rank < who.workers; ++rank) {
      received += parent_of(rank) < who.per_host ? 1 : 0;
    }
    return received * payload;
  }

  template <class World>
  class state {
    using launch = typename World::launch;

   public:
    state(World& world, const options& values) : world_(&world), options_(values) {}

    std::size_t workspace_bytes(std::size_t elements) const {
      return 3 * slot(elements) + world_->compressor().merging_bytes(elements);
    }

    task exchange(typename World::endpoint self, const launch& what) {
      auto& queue = self.queue();
      const std::size_t elements = what.data.size();
      const std::span<const std::byte> mine = what.encode(queue, 0, elements, payload(what, 0));
      const std::span<std::byte> sum = payload(what, 1);
      copy(queue, what, sum, mine);
      int children = 1;  // the distance to this rank's next child, if it has one
      for (; children < self.size() && self.rank() % (2 * children) == 0; children *= 2) {
        if (self.rank() + children < self.size()) {
          const std::span<std::byte> theirs = payload(what, 2);
          co_await self.receive(self.rank() + children, theirs);
          merge(queue, what, sum, theirs);
        }
      }
      if (self.rank() != 0) {
        co_await self.send(parent_of(self.rank()), sum);
        co_await self.receive(parent_of(self.rank()), sum);
      }
      for (children /= 2; children > 0; children /= 2) {
        if (self.rank() + children < self.size()) {
          co_await self.send(self.rank() + children, sum);
        }
      }
      if (options_.give_back == give_back::compatible) {
        take_back(queue, what, mine, sum);
      }
      what.decode(queue, sum, 0, elements);
      what.scale(queue, 0, elements);
    }

   private:
    /// Returns one of three payloads in the workspace: 0 is this rank's, 1 is the sum so far, 2 is
    /// the one being received.
    std::span<std::byte> payload(const launch& what, std::size_t which) const {
      return what.room(which * slot(what.data.size()), what.capacity());
    }
    std::size_t slot(std::size_t elements) const {
      return round_up(world_->compressor().wire_bytes(elements), 64);
    }

    template <class Queue>
    void copy(Queue& queue, const launch& what, std::span<std::byte> to,
              std::span<const std::byte> from) const {
      charge(queue, 2 * from.size());
      if (!what.phantom()) {
        queue.copy(to.data(), from.data(), from.size());
      }
    }
    template <class Queue>
    void merge(Queue& queue, const launch& what, std::span<std::byte> into,
               std::span<const std::byte> from) const {
      charge(queue, 12 * from.size());  // both payloads: each is read five times and written once
      if (!what.phantom()) {
        const auto& compression = world_->compressor();
        const std::size_t elements = what.data.size();
        chunk_context where = what.worker;
        where.scratch = what.room(3 * slot(elements), compression.merging_bytes(elements));
        compression.merge(
            queue, wire{into.data(), into.size()}, const_wire(from.data(), from.size()),
            options_.give_back == give_back::exact ? remembered(what) : std::span<float>(), where);
      }
    }
    template <class Queue>
    void take_back(Queue& queue, const launch& what, std::span<const std::byte> mine,
                   std::span<const std::byte> winners) const {
      charge(queue, mine.size() + winners.size());
      if (!what.phantom()) {
        world_->compressor().add_absent(queue, const_wire(mine.data(), mine.size()),
                                        const_wire(winners.data(), winners.size()),
                                        remembered(what));
      }
    }
    std::span<float> remembered(const launch& what) const {
      return residual_of(world_->compressor(), what.worker, what.data.size());
    }

    World* world_;
    options options_;
  };

 private:
  static constexpr int parent_of(int rank) { return rank & (rank - 1); }
};
static_assert(architecture_policy<sparse_tree>);

}  // namespace tutti::architecture
