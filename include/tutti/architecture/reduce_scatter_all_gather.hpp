#pragma once

#include <cstddef>
#include <utility>

#include "tutti/architecture/payload_parts.hpp"
#include "tutti/base/bounds.hpp"
#include "tutti/collective/exchange_with_all.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/collective.hpp"

namespace tutti::architecture {

/// Every rank owns a part of each chunk, whatever that travels with: it decodes and adds
/// everybody's payload of that part in rank order, encodes the mean again, and sends it to all.
/// Wire: 2(p-1)/p of the payload from every rank, for any compressor. Cost: encoded twice; with
/// error feedback there is a residual at either end, and nothing is lost.
/// After: Tang et al., "1-bit Adam", ICML 2021; Wang et al., "ZeRO++", 2023.
struct reduce_scatter_all_gather {
  using role = tutti::role::architecture;
  static constexpr bool adds_payloads = false;
  static constexpr bool completes_alone = false;
  static constexpr bool encodes_means = true;

  static constexpr double busiest_nic(double payload, double, placement who) {
    return bound::compressed_all_reduce(payload, who.workers, who.per_host);
  }
  static constexpr exchange_cost alone(placement who) {
    return {2, bound::compressed_all_reduce(1, who.workers, who.per_host)};
  }

  /// The part of a chunk that a rank encodes again: first element and end.
  static constexpr std::pair<std::size_t, std::size_t> owned(std::size_t elements, int rank,
                                                             int ranks) {
    return {part_begin(elements, at(ranks), at(rank)),
            part_begin(elements, at(ranks), at(rank + 1))};
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
      const parts cut{&what, self.size()};
      auto& queue = self.queue();
      for (int rank = 0; rank < self.size(); ++rank) {
        cut.keep_length(rank, what.encode(queue, cut.begin(rank), cut.elements(rank),
                                          cut.room(rank, what.capacity(cut.elements(rank)))));
      }
      const auto payload_for = [cut](int rank) {
        return std::span<const std::byte>(cut.payload(rank));
      };
      const int mine = self.rank();
      const auto bytes_of_mine = [cut, mine](int) {
        return cut.whole->capacity(cut.elements(mine));
      };
      const auto add = [&](int rank, std::span<const std::byte> theirs) {
        what.accumulate(queue, rank == mine ? cut.payload(mine) : theirs, cut.begin(mine),
                        cut.elements(mine));
      };
      what.clear(queue, cut.begin(mine), cut.elements(mine));
      co_await collective::exchange_with_all(carrier_of<compression>(self), payload_for,
                                             bytes_of_mine, add);
      what.scale(queue, cut.begin(mine), cut.elements(mine));
      const auto mean = what.encode_mean(queue, cut.begin(mine), cut.elements(mine),
                                         cut.room(mine, what.mean_capacity(cut.elements(mine))));
      const auto mean_of_mine = [mean](int) { return std::span<const std::byte>(mean); };
      const auto bytes_from = [cut](int rank) {
        return cut.whole->mean_capacity(cut.elements(rank));
      };
      const auto decode = [&](int rank, std::span<const std::byte> theirs) {
        what.clear(queue, cut.begin(rank), cut.elements(rank));
        what.accumulate_mean(queue, rank == mine ? mean : theirs, cut.begin(rank),
                             cut.elements(rank));
      };
      co_await collective::exchange_with_all(carrier_of<typename World::relay_type>(self),
                                             mean_of_mine, bytes_from, decode);
    }

   private:
    using compression = typename World::compression;
    using parts = payload_parts<compression>;

    World* world_;
  };
};
static_assert(architecture_policy<reduce_scatter_all_gather>);

}  // namespace tutti::architecture
