#pragma once

#include <cstddef>
#include <string_view>

#include "tutti/architecture/all_reduce.hpp"
#include "tutti/collective/hierarchical.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/collective/torus.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/strategies/horovod.hpp"

namespace tutti::strategies {

/// Horovod with `--hierarchical-allreduce`. The ranks of a host add up a share each. Each rank then
/// adds up its share with the ranks of the same place on other hosts; the last rank also does so
/// with the elements that do not divide. If hosts differ in size, the first rank of each host does
/// so with all elements. Hosts add up around rings, where Horovod calls MPI_Allreduce.
struct HorovodHierarchical {
  static constexpr std::string_view name = "HorovodHierarchical";
  static constexpr std::string_view after = "Horovod, `--hierarchical-allreduce`";
  static constexpr std::string_view deviations =
      "The same as Horovod's; in addition, hosts add up around rings, where Horovod calls "
      "MPI_Allreduce.";
  using strategy =
      compose<fusion::when_ready, coordination::negotiated,
              architecture::all_reduce<collective::hierarchical<
                  collective::ring, collective::ring, collective::crossing::all_ranks_if_even>>>;
  static constexpr policy_options<strategy> defaults(std::size_t on_a_host = 1) {
    const auto its = Horovod::defaults(on_a_host);
    return {.fusion = its.fusion, .coordination = its.coordination};
  }
};

/// Horovod with `--torus-allreduce`: rows are hosts, columns are ranks of the same place, and
/// shares are those of HorovodHierarchical. `architecture.columns` makes rows that are not hosts.
struct HorovodTorus {
  static constexpr std::string_view name = "HorovodTorus";
  static constexpr std::string_view after = "Horovod, `--torus-allreduce`";
  static constexpr std::string_view deviations = "The same as Horovod's.";
  using strategy = compose<fusion::when_ready, coordination::negotiated,
                           architecture::all_reduce<collective::torus>>;
  static constexpr policy_options<strategy> defaults(std::size_t on_a_host = 1) {
    const auto its = Horovod::defaults(on_a_host);
    return {.fusion = its.fusion, .coordination = its.coordination};
  }
};

}  // namespace tutti::strategies
