#pragma once

#include <cstddef>
#include <span>

#include "tutti/base/cost.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/collective.hpp"

namespace tutti::collective {

namespace detail {

/// One of `count` even slices of every part of the data.
struct slice {
  std::size_t count{1};
  std::size_t index{0};

  std::span<std::byte> of(std::span<std::byte> part, std::size_t element_bytes) const {
    if (count == 1) {
      return part;  // without the divisions, which a simulation of short messages would notice
    }
    const std::size_t elements = part.size() / element_bytes;
    const std::size_t begin = part_begin(elements, count, index);
    const std::size_t bytes = (part_begin(elements, count, index + 1) - begin) * element_bytes;
    return part.data() == nullptr ? std::span(part.data(), bytes)  // of a phantom
                                  : part.subspan(begin * element_bytes, bytes);
  }
};

}  // namespace detail

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
    return add_up(self, data, {});
  }
  template <class Endpoint, class Fold>
  task all_gather(Endpoint self, reduction<Fold> data) const {
    return spread(self, data, {});
  }
  template <class Endpoint, class Fold>
  task all_reduce(Endpoint self, reduction<Fold> data) const {
    return add_up_and_spread(self, data, {});
  }

  // ---- the same for one slice of every part

  template <class Endpoint, class Fold>
  static task add_up(Endpoint self, reduction<Fold> data, detail::slice which) {
    const int ranks = self.size();
    const int rank = self.rank();
    for (int step = 1; step < ranks; ++step) {
      co_await self.exchange_fold((rank + 1) % ranks, part(data, which, ranks, rank - step),
                                  (rank + ranks - 1) % ranks,
                                  part(data, which, ranks, rank - step - 1), data.fold);
    }
  }

  template <class Endpoint, class Fold>
  static task spread(Endpoint self, reduction<Fold> data, detail::slice which) {
    const int ranks = self.size();
    const int rank = self.rank();
    for (int step = 0; step < ranks - 1; ++step) {
      co_await self.exchange((rank + 1) % ranks, part(data, which, ranks, rank - step),
                             (rank + ranks - 1) % ranks, part(data, which, ranks, rank - step - 1));
    }
  }

  template <class Endpoint, class Fold>
  static task add_up_and_spread(Endpoint self, reduction<Fold> data, detail::slice which) {
    co_await add_up(self, data, which);
    co_await spread(self, data, which);
  }

 private:
  template <class Fold>
  static std::span<std::byte> part(const reduction<Fold>& data, detail::slice which, int ranks,
                                   int index) {
    return which.of(data.part(at(ranks), at((index + 2 * ranks) % ranks)), data.element_bytes);
  }
};
static_assert(collective_policy<ring>);

}  // namespace tutti::collective
