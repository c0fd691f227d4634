#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tutti/architecture/optimizer_shares.hpp"
#include "tutti/architecture/payload_parts.hpp"
#include "tutti/base/bounds.hpp"
#include "tutti/base/options.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/task.hpp"
#include "tutti/role/architecture.hpp"

namespace tutti::architecture {

/// Keeps the optimizer's state in shares, as `sharded` does, and compresses gradients and
/// parameters on their way by payloads that do not add. On the owner of a chunk's share, with C the
/// compressor, R its relay, x the parameters as all ranks have them and e what R has left out so
/// far,
///   g = mean over q of C(rank q's gradient)     all to all, decoded and added in rank order
///   x, s = optimizer(x, s, g)                   on the owner
///   x = R(x + e);  e = x + e - R(x + e)         from the owner to all, itself included
/// A gradient is rounded once and not at each hop. Under a relay with error feedback, x + e are the
/// exact parameters, which the owner keeps by keeping e; weight decay, however, sees x.
/// Wire: (p-1)/p of C's payload and (p-1)/p of R's from every rank.
/// Cost: a payload is encoded and decoded a part at a time; a float of memory for each parameter
/// (e); a copy of the parameters.
/// After: Wang et al., "ZeRO++", 2023, of which this is the exchange over one level of network.
struct sharded_by_owners {
  using role = tutti::role::architecture;
  static constexpr bool adds_payloads = false;
  static constexpr bool completes_alone = false;
  static constexpr bool owns_parameters = true;
  static constexpr bool owns_parts = true;
  static constexpr bool encodes_means = true;
  static constexpr bool has_halves = true;

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
    using compression = typename World::compression;
    using parts = payload_parts<compression>;

   public:
    state(World& world, const no_options&) : world_(&world), shares_(world) {}

    std::size_t workspace_bytes(std::size_t elements) const {
      return parts::workspace_bytes(world_->compressor(), elements, world_->size());
    }

    task exchange(typename World::endpoint self, const launch& what) {
      const parts cut(what, self.size());
      const chunk& piece = world_->planned().chunks[what.number];
      const std::size_t begin = cut.begin(self.rank());
      const std::size_t elements = cut.elements(self.rank());
      co_await reduce_to_owners(self, cut);
      what.scale(self.queue(), begin, elements);
      const auto mine = what.phantom() ? what.data : what.data.subspan(begin, elements);
      shares_.update(what.number, what.step, mine);
      world_->read_parameters(shares_.share_of(piece), mine);
      if constexpr (World::splits_phases) {
        co_await what.between_halves();
      }
      co_await gather_from_owners(self, cut);
      world_->write_parameters(piece, what.data);
    }

    void arrive(std::size_t, std::uint64_t) {}  // the exchange has updated the parameters

    std::vector<std::span<float>> memories() { return shares_.memories(); }
    std::size_t optimizer_floats() const { return shares_.floats(); }

   private:
    World* world_;
    optimizer_shares<World> shares_;
  };
};
static_assert(architecture_policy<sharded_by_owners>);

}  // namespace tutti::architecture
