#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>

#include "tutti/base/cost.hpp"
#include "tutti/base/task.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/collective/rows.hpp"
#include "tutti/role/collective.hpp"

namespace tutti::collective {

/// Which ranks of a host all-reduce its sum with other hosts.
enum class crossing {
  all_ranks,          ///< on each host as many as the smallest host has ranks, a share each
  all_ranks_if_even,  ///< all, a share each; if hosts differ in size, as first_rank
  first_rank,         ///< the first, which has added up its host's data alone
};

/// The ranks of a host add up their data inside it, a share on each. Ranks that hold the same share
/// on different hosts add those up, and then each host gathers its sum. Shares are equally long:
/// elements left over are added up by the host's last rank, which takes them across hosts, too. A
/// rank without a share sends its data to another rank of its host and waits for the sum.
/// Wire: with rings, 2(h-1)/h of the bytes through the NIC of each of h hosts, however many ranks
/// share it. Cost: a look at every rank's host; scratch of `Inside` or `Across`, whichever is more.
/// After: with crossing::all_ranks_if_even, Horovod's NCCLHierarchicalAllreduce; with
/// crossing::first_rank, tf_cnn_benchmarks' `nccl/xring` and its kind, where NCCL adds up inside a
/// host.
template <splitting_collective Inside = ring, group_collective Across = ring,
          crossing Crossing = crossing::all_ranks>
requires group_collective<Inside>
struct hierarchical {
  using role = tutti::role::collective;
  static constexpr bool rank_ordered = false;
  static constexpr bool ordered_start = Inside::ordered_start || Across::ordered_start;

  static constexpr std::optional<exchange_cost> alone(int ranks, int per_host,
                                                      std::size_t elements) {
    return detail::cost_between_hosts<Across>(ranks, per_host, elements, shares);
  }
  std::size_t scratch_bytes(std::size_t elements, std::size_t element_bytes, int ranks) const {
    std::size_t most = 0;
    // Hosts are not known when a plan is made. Scratch only grows or only shrinks with the number
    // of ranks, so the extremes suffice.
    for (const int group : {1, ranks}) {
      most = std::max({most, Inside{}.scratch_bytes(elements, element_bytes, group),
                       Across{}.scratch_bytes(elements, element_bytes, group)});
    }
    return most;
  }

  template <class Endpoint, class Fold>
  task all_reduce(Endpoint self, reduction<Fold> data) const {
    const auto host_of = [self](int rank) { return self.host_of(rank); };
    return detail::all_reduce_in_rows<Inside, Across>(self, data, host_of, shares);
  }

 private:
  static constexpr detail::shares_of_a_row shares =
      Crossing == crossing::all_ranks           ? detail::shares_of_a_row::as_the_shortest
      : Crossing == crossing::all_ranks_if_even ? detail::shares_of_a_row::undivided_if_uneven
                                                : detail::shares_of_a_row::undivided;
};
static_assert(collective_policy<hierarchical<>>);

}  // namespace tutti::collective
