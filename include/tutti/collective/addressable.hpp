#pragma once

#include <algorithm>
#include <cstring>

#include "tutti/role/collective.hpp"

namespace tutti::collective {

/// Every rank adds its part straight out of its peers' memory, in rank order, and writes the sum
/// into everybody's. Up to 56 bytes travel inside the meeting itself.
/// Wire: none; two meetings, or one. Cost: one pass over the data, shared by the ranks.
/// After: the shared-memory bound that MPI libraries pay copies to approach.
struct addressable {
  using role = tutti::role::collective;
  static constexpr bool rank_ordered = true;
  static constexpr bool ordered_start = false;
  static constexpr bool requires_addressable_peers = true;

  std::size_t scratch_bytes(std::size_t, std::size_t, int) const { return 0; }

  template <class Endpoint, class Fold>
  task all_reduce(Endpoint self, reduction<Fold> data) const {
    const auto bytes = data.all();
    if (bytes.size() <= inline_bytes) {
      const auto shown = co_await self.meet(bytes);
      for (int peer = 0; peer < self.size() && !bytes.empty(); ++peer) {
        if (peer == 0) {
          std::memcpy(bytes.data(), shown.of(0), bytes.size());
        } else {
          data.fold(self.queue(), bytes.data(), shown.of(peer), bytes.size());
        }
      }
      co_return;
    }
    const auto shown = co_await self.meet(std::as_bytes(std::span(&data.data, 1)));
    add_part(self, data, shown);
    co_await self.meet(std::span<const std::byte>{});
  }

 private:
  static constexpr std::size_t inline_bytes = 56;
  static constexpr std::size_t block_bytes = 16 << 10;

  /// Rank 0's memory takes the sum, a block at a time: the block is still in the nearest cache when
  /// it is copied to the others. The last to be added gets its copy in the same pass.
  template <class Endpoint, class Fold, class Shown>
  static void add_part(Endpoint& self, const reduction<Fold>& data, const Shown& shown) {
    const int last = self.size() - 1;
    const std::size_t begin = part_begin(data.elements, at(self.size()), at(self.rank()));
    const std::size_t end = part_begin(data.elements, at(self.size()), at(self.rank() + 1));
    const std::size_t block = last == 1 ? end - begin : block_bytes / data.element_bytes;
    for (std::size_t first = begin; first < end; first += block) {
      const std::size_t offset = first * data.element_bytes;
      const std::size_t bytes = std::min(block, end - first) * data.element_bytes;
      const auto of = [&](int peer) { return shown.template shown<std::byte*>(peer) + offset; };
      for (int peer = 1; peer < last; ++peer) {
        data.fold(self.queue(), of(0), of(peer), bytes);
      }
      if (last > 0) {
        add_both(self.queue(), data.fold, of(0), of(last), bytes);
      }
      for (int peer = 1; peer < last; ++peer) {
        self.queue().copy(of(peer), of(0), bytes);
      }
    }
  }

  template <class Queue, class Fold>
  static void add_both(Queue& queue, const Fold& fold, std::byte* one, std::byte* other,
                       std::size_t bytes) {
    if constexpr (requires { fold.both(queue, one, other, bytes); }) {
      fold.both(queue, one, other, bytes);
    } else {
      fold(queue, one, other, bytes);
      queue.copy(other, one, bytes);
    }
  }
};
static_assert(collective_policy<addressable>);

}  // namespace tutti::collective
