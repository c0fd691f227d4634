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

/// Who sends a host's sum to other hosts.
enum class crossing {
  all_ranks,          ///< as many of each as the smallest host has, each a share
  all_ranks_if_even,  ///< all, each a share; of hosts of different sizes the first, all of it
  first_rank,         ///< all of it, having added up its host's data alone
};

/// The ranks of a host add up inside, each a share; the ranks that hold the same share of different
/// hosts add those up across; then each host gathers its sum. All shares are as long: what does not
/// divide is added up by the host's last rank, which crosses with it. A rank beyond the shares
/// hands its data to another of its host and waits for the sum.
/// Wire: with rings 2(h-1)/h of the bytes through the NIC of each of h hosts, however many ranks
/// share it. Cost: a look at every rank for its host; scratch as inside or across, whichever is
/// more.
/// After: with crossing::all_ranks_if_even Horovod's NCCLHierarchicalAllreduce; with
/// crossing::first_rank tf_cnn_benchmarks' `nccl/xring` and its kind, where NCCL adds up inside.
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
    for (const int group : {1, ranks}) {  // neither where hosts are known when the plan is made
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
