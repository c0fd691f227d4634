#pragma once

#include <algorithm>
#include <array>
#include <cstring>

#include "tutti/role/collective.hpp"

namespace tutti::collective {

/// Every rank adds up its part of the data out of its peers' memory, in rank order, and writes the
/// sum into the memory of all. Up to 56 bytes travel inside the rendezvous itself.
/// Wire: none; two rendezvous, or one for up to 56 bytes. Cost: one pass over the data, shared by
/// the ranks.
/// After: the shared-memory bound, which MPI libraries approach at the cost of copies.
struct addressable {
  using role = tutti::role::collective;
  static constexpr bool rank_ordered = true;
  static constexpr bool ordered_start = false;
  static constexpr bool requires_addressable_peers = true;

  std::size_t scratch_bytes(std::size_t, std::size_t, int) const { return 0; }

  template <class Endpoint, class Fold>
  task all_reduce(Endpoint self, reduction<Fold> data) const {
    if (data.all().size() <= inline_bytes) {
      const auto shown = co_await self.rendezvous(data.all());
      add_shown(self, data, shown);
      co_return;
    }
    {
      const auto shown = co_await self.rendezvous(std::as_bytes(std::span(&data.data, 1)));
      add_part(self, data, [&](int peer) { return shown.template shown<std::byte*>(peer); });
    }
    co_await self.rendezvous(std::span<const std::byte>{});
  }

  /// The most bytes that one rendezvous shows.
  static constexpr std::size_t inline_bytes = 56;

  /// Leaves in `data` the sum of what every rank has shown.
  template <class Endpoint, class Fold, class Shown>
  static void add_shown(Endpoint& self, const reduction<Fold>& data, const Shown& shown) {
    const auto bytes = data.all();
    for (int peer = 0; peer < self.size() && !bytes.empty(); ++peer) {
      if (peer != 0) {
        data.fold(self.queue(), bytes.data(), shown.of(peer), bytes.size());
      } else if (self.rank() != 0) {
        std::memcpy(bytes.data(), shown.of(0), bytes.size());
      }
    }
  }

  /// Leaves the sum of this rank's part in the memory of all ranks. Rank r's data begins at
  /// `data_of(r)`.
  ///
  /// Up to four ranks' memories are added and written in one pass. With more ranks, the memory of
  /// rank 0 takes the sum of three more at a time, one block after another, so that a block is
  /// still in the nearest cache when it is copied to the ranks that hold only part of the sum.
  template <class Endpoint, class Fold, class DataOf>
  static void add_part(Endpoint& self, const reduction<Fold>& data, DataOf data_of) {
    const int ranks = self.size();
    const std::size_t begin = part_begin(data.elements, at(ranks), at(self.rank()));
    const std::size_t end = part_begin(data.elements, at(ranks), at(self.rank() + 1));
    const std::size_t block = ranks <= 4 ? end - begin : block_bytes / data.element_bytes;
    for (std::size_t first = begin; first < end; first += block) {
      const std::size_t offset = first * data.element_bytes;
      const std::size_t bytes = std::min(block, end - first) * data.element_bytes;
      const auto of = [&](int peer) { return data_of(peer) + offset; };
      int added = 1;
      int whole = 1;  // the first rank besides 0 that holds the sum of all
      for (; added < ranks; added = std::min(ranks, added + 3)) {
        whole = added;
        switch (ranks - added) {
          case 1:
            add(self.queue(), data.fold, std::array{of(0), of(added)}, bytes);
            break;
          case 2:
            add(self.queue(), data.fold, std::array{of(0), of(added), of(added + 1)}, bytes);
            break;
          default:
            add(self.queue(), data.fold, std::array{of(0), of(added), of(added + 1), of(added + 2)},
                bytes);
        }
      }
      for (int peer = 1; peer < whole; ++peer) {
        self.queue().copy(of(peer), of(0), bytes);
      }
    }
  }

 private:
  static constexpr std::size_t block_bytes = 16 << 10;

  template <class Queue, class Fold, std::size_t Count>
  static void add(Queue& queue, const Fold& fold, const std::array<std::byte*, Count>& all,
                  std::size_t bytes) {
    if constexpr (requires { fold.everywhere(queue, all, bytes); }) {
      fold.everywhere(queue, all, bytes);
    } else {
      for (std::size_t each = 1; each < Count; ++each) {
        fold(queue, all[0], all[each], bytes);
      }
      for (std::size_t each = 1; each < Count; ++each) {
        queue.copy(all[each], all[0], bytes);
      }
    }
  }
};
static_assert(collective_policy<addressable>);

}  // namespace tutti::collective
