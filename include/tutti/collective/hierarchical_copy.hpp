#pragma once

#include <cstddef>
#include <cstdint>

#include "tutti/base/all_of.hpp"
#include "tutti/base/task.hpp"
#include "tutti/role/collective.hpp"

namespace tutti::collective {

/// The ranks form two halves; the second is the shorter one if p is odd. In each half one rank adds
/// up the half's data. One of these two adds the other's sum and returns the total, and each sends
/// it to its half. Which two ranks do so changes from chunk to chunk, in turns.
/// Wire: the bytes once from every rank, and p/2 times from the two. Cost: p/2 messages in a row
/// each way; only two pass between the halves, whose links may be slow.
/// After: tensorpack's `hierarchical` and tf_cnn_benchmarks' `--hierarchical_copy` for a DGX-1,
/// which are for 8 GPUs only.
struct hierarchical_copy {
  using role = tutti::role::collective;
  static constexpr bool rank_ordered = false;
  static constexpr bool ordered_start = false;

  std::size_t scratch_bytes(std::size_t, std::size_t, int) const { return 0; }
  std::uint64_t route_of(const named_piece& piece) const { return piece.turn; }

  template <class Endpoint, class Fold>
  task all_reduce(Endpoint self, reduction<Fold> data) const {
    const int rank = self.rank();
    const int ranks = self.size();
    const int half = ranks - ranks / 2;
    const int main = static_cast<int>(data.route % at(ranks));
    const int opposite =
        main >= half ? main - half : half + (half < ranks ? main % (ranks - half) : 0);
    const bool first = rank < half;
    const int mine = first == (main < half) ? main : opposite;
    if (rank != mine) {
      co_await self.send(mine, data.all());
      co_await self.receive(mine, data.all());
      co_return;
    }
    const int begin = first ? 0 : half;
    const int end = first ? half : ranks;
    frame_array<int> others(at(end - begin));
    for (int peer = begin; peer < end; ++peer) {
      if (peer != rank) {
        co_await self.receive_fold(peer, data.all(), data.fold);
        others.add([&] { return peer; });
      }
    }
    if (half < ranks && rank == main) {
      co_await self.send(opposite, data.all());
      co_await self.receive(opposite, data.all());
    } else if (half < ranks) {
      co_await self.receive_fold(main, data.all(), data.fold);
      co_await self.send(main, data.all());
    }
    operations sends(others.size(),
                     [&](std::size_t index) { return self.send(others[index], data.all()); });
    co_await all_of(sends);
  }
};
static_assert(collective_policy<hierarchical_copy>);

}  // namespace tutti::collective
