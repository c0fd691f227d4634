#pragma once

#include "tutti/base/cost.hpp"
#include "tutti/role/collective.hpp"

namespace tutti::collective {

/// Parts of the data travel around the ring of ranks, once to be added up and once more to be
/// spread.
/// Wire: 2(p-1)/p of the bytes from every rank, in 2(p-1) messages. Cost: the fewest bytes
/// possible; latency grows with p.
/// After: Patarasuk and Yuan, JPDC 2009; Gibiansky, "Bringing HPC techniques to deep learning".
struct ring {
  using role = tutti::role::collective;
  static constexpr bool rank_ordered = false;
  static constexpr bool ordered_start = false;

  static constexpr exchange_cost alone(int ranks) {
    const double messages = 2.0 * (ranks - 1);
    return {messages, messages / ranks};
  }
  std::size_t scratch_bytes(std::size_t, std::size_t, int) const { return 0; }

  template <class Endpoint, class Fold>
  task reduce_scatter(Endpoint self, reduction<Fold> data) const {
    const int ranks = self.size();
    const int rank = self.rank();
    const auto part = [&](int index) {
      return data.part(at(ranks), at((index + 2 * ranks) % ranks));
    };
    for (int step = 1; step < ranks; ++step) {
      co_await self.exchange_fold((rank + 1) % ranks, part(rank - step), (rank + ranks - 1) % ranks,
                                  part(rank - step - 1), data.fold);
    }
  }

  template <class Endpoint, class Fold>
  task all_gather(Endpoint self, reduction<Fold> data) const {
    const int ranks = self.size();
    const int rank = self.rank();
    const auto part = [&](int index) {
      return data.part(at(ranks), at((index + 2 * ranks) % ranks));
    };
    for (int step = 0; step < ranks - 1; ++step) {
      co_await self.exchange((rank + 1) % ranks, part(rank - step), (rank + ranks - 1) % ranks,
                             part(rank - step - 1));
    }
  }

  template <class Endpoint, class Fold>
  task all_reduce(Endpoint self, reduction<Fold> data) const {
    co_await reduce_scatter(self, data);
    co_await all_gather(self, data);
  }
};
static_assert(collective_policy<ring>);

}  // namespace tutti::collective
