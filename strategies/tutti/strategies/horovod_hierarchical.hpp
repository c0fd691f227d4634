#pragma once

#include <cstddef>
#include <string_view>

#include "tutti/architecture/all_reduce.hpp"
#include "tutti/collective/hierarchical.hpp"
#include "tutti/collective/torus.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/strategies/horovod.hpp"

namespace tutti::strategies {

/// Horovod with `--hierarchical-allreduce`: the ranks of a host add up, each a share, and all of
/// them cross to their like on other hosts. Horovod reduces what does not divide by a host's ranks
/// to one of them, which crosses; here some shares are longer by an element.
struct HorovodHierarchical {
  static constexpr std::string_view name = "HorovodHierarchical";
  static constexpr std::string_view after = "Horovod, `--hierarchical-allreduce`";
  static constexpr std::string_view deviations =
      "As Horovod's; and it reduces what does not divide by a host's ranks to one of them, "
      "which crosses; here some shares are longer by an element.";
  using strategy = compose<fusion::when_ready, coordination::negotiated,
                           architecture::all_reduce<collective::hierarchical<>>>;
  static constexpr policy_options<strategy> defaults(std::size_t on_a_host = 1) {
    const auto its = Horovod::defaults(on_a_host);
    return {.fusion = its.fusion, .coordination = its.coordination};
  }
};

/// Horovod with `--torus-allreduce`: the same rows and columns, both of them rings. There the last
/// rank of a row also takes what does not divide; `architecture.columns` makes rows that are not
/// hosts.
struct HorovodTorus {
  static constexpr std::string_view name = "HorovodTorus";
  static constexpr std::string_view after = "Horovod, `--torus-allreduce`";
  static constexpr std::string_view deviations =
      "As Horovod's; and there the last rank of a row also takes what does not divide.";
  using strategy = compose<fusion::when_ready, coordination::negotiated,
                           architecture::all_reduce<collective::torus>>;
  static constexpr policy_options<strategy> defaults(std::size_t on_a_host = 1) {
    const auto its = Horovod::defaults(on_a_host);
    return {.fusion = its.fusion, .coordination = its.coordination};
  }
};

}  // namespace tutti::strategies
