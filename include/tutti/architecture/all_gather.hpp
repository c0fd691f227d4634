#pragma once

#include "tutti/base/bounds.hpp"
#include "tutti/collective/exchange_with_all.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/collective.hpp"

namespace tutti::architecture {

/// Every rank sends its payload to every other rank, and each rank adds up all payloads in rank
/// order.
/// Wire: (p-1) payloads from every rank.
/// Cost: every rank decodes p payloads of the whole chunk. This pays where payloads are tiny and
/// cannot be cut into parts.
/// After: the exchange of sparse gradients in Horovod and in TopK-SGD.
struct all_gather {
  using role = tutti::role::architecture;
  static constexpr bool adds_payloads = false;
  static constexpr bool completes_alone = false;

  static constexpr double busiest_nic(double payload, double, placement who) {
    return bound::all_gather(payload, who.workers, who.per_host);
  }
  static constexpr exchange_cost alone(placement who) {
    return {1, who.per_host * bound::gather(1, who.workers, who.per_host), who.workers - 1.0};
  }

  template <class World>
  class state {
   public:
    state(World& world, const no_options&) : world_(&world) {}

    std::size_t workspace_bytes(std::size_t elements) const {
      return most_bytes(world_->compressor(), elements);
    }

    task exchange(typename World::endpoint self, const typename World::launch& what) {
      auto& queue = self.queue();
      const std::size_t elements = what.data.size();
      const auto payload = what.encode(queue, 0, elements, what.room(0, what.capacity()));
      const auto everybody = [payload](int) { return std::span<const std::byte>(payload); };
      const auto bytes_from = [&what](int) { return what.capacity(); };
      const auto add = [&](int rank, std::span<const std::byte> theirs) {
        what.accumulate_from(queue, rank, rank == self.rank() ? payload : theirs, 0, elements);
      };
      co_await collective::exchange_with_all(carrier_of<typename World::compression>(self),
                                             everybody, bytes_from, add);
      what.scale(queue, 0, elements);
    }

   private:
    World* world_;
  };
};
static_assert(architecture_policy<all_gather>);

}  // namespace tutti::architecture
