#pragma once

#include <bit>
#include <optional>

#include "tutti/base/cost.hpp"
#include "tutti/role/collective.hpp"

namespace tutti::collective {

/// Ranks exchange halves of their data with ever nearer ranks and add them up, then spread the sums
/// along the same way back.
/// Wire: 2(p-1)/p of the bytes in 2 log2(p) messages if p is a power of two. Otherwise each rank
/// beyond the largest power of two first sends its data to a lower rank and later receives the sum
/// from it: twice all bytes more for each such rank. Cost: the lowest latency among the collectives
/// with the fewest bytes.
/// After: Rabenseifner, ICCS 2004; Thakur et al., IJHPCA 2005.
struct halving_doubling {
  using role = tutti::role::collective;
  static constexpr bool rank_ordered = false;
  static constexpr bool ordered_start = false;

  /// Known only if each rank has a host of its own, since messages between near ranks of a host
  /// pass no NIC, and only for a power of two.
  static constexpr std::optional<exchange_cost> alone(int ranks, int per_host, std::size_t) {
    const auto core = static_cast<unsigned>(ranks);
    if (per_host != 1 || !std::has_single_bit(core)) {
      return std::nullopt;
    }
    return exchange_cost{2.0 * std::countr_zero(core), 2.0 * (ranks - 1) / ranks};
  }
  std::size_t scratch_bytes(std::size_t, std::size_t, int) const { return 0; }

  template <class Endpoint, class Fold>
  task all_reduce(Endpoint self, reduction<Fold> data) const {
    const int core = static_cast<int>(std::bit_floor(static_cast<unsigned>(self.size())));
    const int rank = self.rank();
    if (rank >= core) {
      co_await self.send(rank - core, data.all());
      co_await self.receive(rank - core, data.all());
      co_return;
    }
    const bool has_partner = rank + core < self.size();
    if (has_partner) {
      co_await self.receive_fold(rank + core, data.all(), data.fold);
    }
    for (int distance = core / 2; distance > 0; distance /= 2) {
      const int peer = rank ^ distance;
      co_await self.exchange_fold(peer, half(data, core, peer, distance), peer,
                                  half(data, core, rank, distance), data.fold);
    }
    for (int distance = 1; distance < core; distance *= 2) {
      const int peer = rank ^ distance;
      co_await self.exchange(peer, half(data, core, rank, distance), peer,
                             half(data, core, peer, distance));
    }
    if (has_partner) {
      co_await self.send(rank + core, data.all());
    }
  }

 private:
  /// The parts of the ranks that agree with `rank` in every bit from `distance` up.
  template <class Fold>
  static std::span<std::byte> half(const reduction<Fold>& data, int core, int rank, int distance) {
    const int first = rank & ~(distance - 1);
    const std::size_t begin = part_begin(data.elements, at(core), at(first));
    const std::size_t end = part_begin(data.elements, at(core), at(first + distance));
    return {data.data == nullptr ? nullptr : data.data + begin * data.element_bytes,
            (end - begin) * data.element_bytes};
  }
};
static_assert(collective_policy<halving_doubling>);

}  // namespace tutti::collective
