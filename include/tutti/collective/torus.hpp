#pragma once

#include <cstddef>
#include <optional>

#include "tutti/base/cost.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/task.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/collective/rows.hpp"
#include "tutti/role/collective.hpp"

namespace tutti::collective {

/// The ranks form a grid whose rows and columns are rings. The ranks of a row add up their data, a
/// share on each; the ranks of a column add up their share; then each row gathers the sum. Shares
/// are equally long: elements left over are added up by the row's last rank, beside its own share.
/// If rows differ in length data is not divided: the first rank of each row adds up the row's data.
/// Wire: in a grid of r rows and c columns a rank sends 2(c-1)/c of the bytes along its row and
/// 2(r-1)/(rc) along its column, in 2(c-1) + 2(r-1) messages. Cost: the ring's bytes, and a latency
/// that grows with the grid's sides and not with its area; a look at every rank's row.
/// After: Mikami et al., arXiv 1811.05233; Horovod's HOROVOD_TORUS_ALLREDUCE, where rows are hosts,
/// as they are by default here.
class torus {
 public:
  using role = tutti::role::collective;
  static constexpr bool rank_ordered = false;
  static constexpr bool ordered_start = false;

  struct options {
    int columns{};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("columns", self.columns,
            "ranks in a row of the grid; 0: the ranks of a host form a row");
    }
  };

  constexpr torus() = default;
  /// Throws usage_error for less than 0 columns.
  explicit constexpr torus(const options& values) : options_(values) {
    if (values.columns < 0) {
      throw usage_error(
          "collective::torus: columns must not be negative. Fix: 0 for one row per host, or 4");
    }
  }

  /// Known only where rows are hosts.
  constexpr std::optional<exchange_cost> alone(int ranks, int per_host,
                                               std::size_t elements) const {
    return options_.columns == 0 || options_.columns == per_host
               ? detail::cost_between_hosts<ring>(ranks, per_host, elements,
                                                  detail::shares_of_a_row::undivided_if_uneven)
               : std::nullopt;
  }
  std::size_t scratch_bytes(std::size_t, std::size_t, int) const { return 0; }

  template <class Endpoint, class Fold>
  task all_reduce(Endpoint self, reduction<Fold> data) const {
    const auto row_of = [self, columns = options_.columns](int rank) {
      return columns == 0 ? self.host_of(rank) : rank / columns;
    };
    return detail::all_reduce_in_rows<ring, ring>(self, data, row_of,
                                                  detail::shares_of_a_row::undivided_if_uneven);
  }

 private:
  options options_{};
};
static_assert(collective_policy<torus>);

}  // namespace tutti::collective
