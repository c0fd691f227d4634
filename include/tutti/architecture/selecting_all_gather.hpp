#pragma once

#include <cstddef>
#include <span>

#include "tutti/base/bounds.hpp"
#include "tutti/base/options.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/units.hpp"
#include "tutti/collective/exchange_with_all.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/collective.hpp"

namespace tutti::architecture {

/// Every rank sends its selection of elements to every other rank. Each rank adds up all selections
/// in rank order, and selects again as many elements of the sum, which are applied. What a rank had
/// selected of the other elements is not applied; with error feedback it goes back into the rank's
/// residual, so that nothing is lost: contributions = applied + residuals.
/// Wire: (p-1) payloads from every rank, as in all_gather.
/// Cost: beside all_gather's, a selection from the whole chunk, and a binary search for each pair
/// of index and value.
/// After: gTopK-SGD's code (Shi et al., ICDCS 2019), its compressor `topk2`.
struct selecting_all_gather {
  using role = tutti::role::architecture;
  static constexpr bool adds_payloads = false;
  static constexpr bool completes_alone = false;
  static constexpr bool merges_payloads = true;

  static constexpr double busiest_nic(double payload, double, placement who) {
    return bound::all_gather(payload, who.workers, who.per_host);
  }
  static constexpr exchange_cost alone(placement who) {
    return {1, who.per_host * bound::gather(1, who.workers, who.per_host), who.workers - 1.0};
  }

  template <class World>
  class state {
    using launch = typename World::launch;

   public:
    state(World& world, const no_options&) : world_(&world) {}

    std::size_t workspace_bytes(std::size_t elements) const { return 2 * slot(elements); }

    task exchange(typename World::endpoint self, const launch& what) {
      auto& queue = self.queue();
      const std::size_t elements = what.data.size();
      const auto mine = what.encode(queue, 0, elements, what.room(0, what.capacity()));
      const auto everybody = [mine](int) { return std::span<const std::byte>(mine); };
      const auto bytes_from = [&what](int) { return what.capacity(); };
      const auto add = [&](int rank, std::span<const std::byte> theirs) {
        what.accumulate_from(queue, rank, rank == self.rank() ? mine : theirs, 0, elements);
      };
      co_await collective::exchange_with_all(carrier_of<typename World::compression>(self),
                                             everybody, bytes_from, add);
      const auto largest = what.room(slot(elements), what.capacity());
      select(queue, what, mine, largest);
      what.decode(queue, largest, 0, elements);
      what.scale(queue, 0, elements);
    }

   private:
    std::size_t slot(std::size_t elements) const {
      return round_up(world_->compressor().wire_bytes(elements), 64);
    }

    /// Selects the largest elements of the sum, and puts what this rank had selected of the others
    /// back into its residual.
    template <class Queue>
    void select(Queue& queue, const launch& what, std::span<const std::byte> mine,
                std::span<std::byte> out) const {
      charge(queue, what.data.size_bytes() + mine.size() + out.size());
      if (!what.phantom()) {
        const auto& compression = world_->compressor();
        const wire largest{out.data(), out.size()};
        compression.select(queue, what.data, largest, what.worker);
        compression.add_absent(queue, const_wire(mine.data(), mine.size()), largest,
                               residual_of(compression, what.worker, what.data.size()));
      }
    }

    World* world_;
  };
};
static_assert(architecture_policy<selecting_all_gather>);

}  // namespace tutti::architecture
