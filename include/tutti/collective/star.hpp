#pragma once

#include "tutti/collective/fan_out.hpp"
#include "tutti/role/collective.hpp"

namespace tutti::collective {

/// Rank 0 adds up all ranks' data in rank order and sends the sum back.
/// Wire: 2(p-1) times the bytes through rank 0. Cost: the fewest steps; rank 0's link is the
/// bottleneck.
/// After: KungFu's STAR strategy, Mai et al., OSDI 2020.
struct star {
  using role = tutti::role::collective;
  static constexpr bool rank_ordered = true;
  static constexpr bool ordered_start = false;

  std::size_t scratch_bytes(std::size_t, std::size_t, int) const { return 0; }

  template <class Endpoint, class Fold>
  task all_reduce(Endpoint self, reduction<Fold> data) const {
    if (self.rank() != 0) {
      co_await self.send(0, data.all());
      co_await self.receive(0, data.all());
      co_return;
    }
    for (int peer = 1; peer < self.size(); ++peer) {
      co_await self.receive_fold(peer, data.all(), data.fold);
    }
    co_await send_to_all(self, data.all());
  }
};
static_assert(collective_policy<star>);

}  // namespace tutti::collective
