#pragma once

#include <cstddef>

#include "tutti/architecture/payload_parts.hpp"
#include "tutti/base/bounds.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/architecture.hpp"

namespace tutti::architecture {

/// An all-reduce of payloads that do not add. Every rank owns a part of each chunk, whichever
/// chunks travel together. It decodes and adds all ranks' payloads of that part in rank order,
/// encodes the mean again, and sends it to all ranks.
/// Wire: 2(p-1)/p of the payload from every rank, for any compressor.
/// Cost: every element is encoded twice. With error feedback there is a residual at either end, and
/// nothing is lost.
/// After: Tang et al., "1-bit Adam", ICML 2021; Wang et al., "ZeRO++", 2023.
struct reduce_scatter_all_gather {
  using role = tutti::role::architecture;
  static constexpr bool adds_payloads = false;
  static constexpr bool completes_alone = false;
  static constexpr bool encodes_means = true;
  static constexpr bool owns_parts = true;

  static constexpr double busiest_nic(double payload, double, placement who) {
    return bound::compressed_all_reduce(payload, who.workers, who.per_host);
  }
  static constexpr exchange_cost alone(placement who) {
    return {2, bound::compressed_all_reduce(1, who.workers, who.per_host),
            2.0 * (who.workers - 1) / who.workers};
  }

  template <class World>
  class state {
    using launch = typename World::launch;

   public:
    state(World& world, const no_options&) : world_(&world) {}

    std::size_t workspace_bytes(std::size_t elements) const {
      return parts::workspace_bytes(world_->compressor(), elements, world_->size());
    }

    task exchange(typename World::endpoint self, const launch& what) {
      const parts cut(what, self.size());
      const int mine = self.rank();
      co_await reduce_to_owners(self, cut);
      what.scale(self.queue(), cut.begin(mine), cut.elements(mine));
      co_await gather_from_owners(self, cut);
    }

   private:
    using compression = typename World::compression;
    using parts = payload_parts<compression>;

    World* world_;
  };
};
static_assert(architecture_policy<reduce_scatter_all_gather>);

}  // namespace tutti::architecture
