#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>

#include "tutti/base/all_of.hpp"
#include "tutti/base/task.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/role/collective.hpp"

namespace tutti::collective {

namespace detail {

/// Who shares the host of this rank, who holds the same place on each host, and how many ranks the
/// smallest host has. Places count the ranks of a host from 0.
class neighbours {
 public:
  template <class Endpoint>
  explicit neighbours(const Endpoint& self)
      : here_(at(self.size())), places_(at(self.size())), hosts_(at(last_host(self) + 1)) {
    for (std::size_t host = 0; host < hosts_.room(); ++host) {
      hosts_.add([] { return 0; });
    }
    for (int rank = 0; rank < self.size(); ++rank) {
      const int place = hosts_[at(self.host_of(rank))]++;
      places_.add([&] { return place; });
      if (self.host_of(rank) == self.host_of(self.rank())) {
        here_.add([&] { return rank; });
      }
    }
    for (const int ranks : hosts_.span()) {
      fewest_ = ranks == 0 ? fewest_ : std::min(fewest_, ranks);
    }
  }

  std::span<const int> here() const { return here_.span(); }
  int fewest() const { return fewest_; }
  bool has_place(int rank, int place) const { return places_.span()[at(rank)] == place; }

 private:
  template <class Endpoint>
  static int last_host(const Endpoint& self) {
    int last = 0;
    for (int rank = 0; rank < self.size(); ++rank) {
      last = std::max(last, self.host_of(rank));
    }
    return last;
  }

  frame_array<int> here_;
  frame_array<int> places_;
  frame_array<int> hosts_;  // how many ranks each has
  int fewest_ = std::numeric_limits<int>::max();
};

}  // namespace detail

/// The ranks of a host add up inside, each a share; the ranks that hold the same share of different
/// hosts add those up across; then each host gathers its sum. Shares differ by an element at most;
/// there are as many as the smallest host has ranks. A rank beyond that hands its data to another
/// of its host and waits for the sum.
/// Wire: with rings 2(h-1)/h of the bytes through the NIC of each of h hosts, however many ranks
/// share it. Cost: a look at every rank for its host; scratch as inside or across, whichever is
/// more.
/// After: Horovod's hierarchical all-reduce, where the last rank of a host takes what does not
/// divide, and where hosts of different sizes have one share.
template <splitting_collective Inside = ring, group_collective Across = ring>
requires group_collective<Inside>
struct hierarchical {
  using role = tutti::role::collective;
  static constexpr bool rank_ordered = false;
  static constexpr bool ordered_start = Inside::ordered_start || Across::ordered_start;

  std::size_t scratch_bytes(std::size_t elements, std::size_t element_bytes, int ranks) const {
    std::size_t most = 0;
    for (const int group : {1, ranks}) {  // neither where hosts are known when the plan is made
      most = std::max({most, Inside{}.scratch_bytes(elements, element_bytes, group),
                       Across{}.scratch_bytes(elements, element_bytes, group)});
    }
    return most;
  }

  template <class Endpoint, class Fold>
  task all_reduce(Endpoint self, reduction<Fold> data) const {
    const Inside within{};
    const Across between{};
    const detail::neighbours all(self);
    const auto inside = self.group(all.here());
    const int shares = all.fewest();
    const int mine = inside.rank() % shares;
    if (inside.rank() != mine) {
      co_await inside.send(mine, data.all());
      co_await inside.receive(mine, data.all());
      co_return;
    }
    for (int rank = mine + shares; rank < inside.size(); rank += shares) {
      co_await inside.receive_fold(rank, data.all(), data.fold);
    }
    const auto sharing = self.group(all.here().first(at(shares)));
    frame_array<int> across(at(self.size()));
    for (int rank = 0; rank < self.size(); ++rank) {
      if (all.has_place(rank, mine)) {
        across.add([&] { return rank; });
      }
    }
    co_await within.reduce_scatter(sharing, data);
    co_await between.all_reduce(self.group(across.span()), data.share(at(shares), at(mine)));
    co_await within.all_gather(sharing, data);
    operations sums(at((inside.size() - 1 - mine) / shares), [&](std::size_t index) {
      return inside.send(mine + shares * static_cast<int>(index + 1), data.all());
    });
    co_await all_of(sums);
  }
};
static_assert(collective_policy<hierarchical<>>);

}  // namespace tutti::collective
