#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>

#include "tutti/base/all_of.hpp"
#include "tutti/base/bounds.hpp"
#include "tutti/base/cost.hpp"
#include "tutti/base/task.hpp"
#include "tutti/role/collective.hpp"

/// Divides ranks into rows, such as the ranks of each host, and all-reduces along rows and across
/// them.
namespace tutti::collective {

namespace detail {

/// How the ranks are divided into rows: the ranks of this rank's row, every rank's place in its
/// row, and the lengths of the rows. Places count from 0.
class rows {
 public:
  /// `row_of(rank)` is the number of the row that a rank is in: 0 or more.
  template <class RowOf>
  rows(int rank, int ranks, RowOf row_of)
      : here_(at(ranks)), places_(at(ranks)), lengths_(at(last_row(ranks, row_of) + 1)) {
    for (std::size_t row = 0; row < lengths_.room(); ++row) {
      lengths_.add([] { return 0; });
    }
    for (int each = 0; each < ranks; ++each) {
      const int place = lengths_[at(row_of(each))]++;
      places_.add([&] { return place; });
      if (row_of(each) == row_of(rank)) {
        here_.add([&] { return each; });
      }
    }
    for (const int length : lengths_.span()) {
      shortest_ = length == 0 ? shortest_ : std::min(shortest_, length);
      longest_ = std::max(longest_, length);
    }
  }

  std::span<const int> here() const { return here_.span(); }
  int count() const { return static_cast<int>(lengths_.size()); }
  int length(int row) const { return lengths_.span()[at(row)]; }
  int shortest() const { return shortest_; }
  int longest() const { return longest_; }
  bool even() const { return shortest_ == longest_; }
  int place(int rank) const { return places_.span()[at(rank)]; }

 private:
  template <class RowOf>
  static int last_row(int ranks, RowOf row_of) {
    int last = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      last = std::max(last, row_of(rank));
    }
    return last;
  }

  frame_array<int> here_;
  frame_array<int> places_;
  frame_array<int> lengths_;
  int shortest_ = std::numeric_limits<int>::max();
  int longest_ = 0;
};

/// How many shares a row's sum is divided into.
enum class shares_of_a_row {
  as_the_shortest,      ///< as many as the shortest row has ranks
  undivided_if_uneven,  ///< likewise, but one if rows differ in length
  undivided,            ///< one, held by the first rank
};

/// The shares of a row's data: equally long ones, one for each rank, and the rest that does not
/// divide, which the last rank takes besides its own.
template <class Fold>
struct equal_shares {
  equal_shares(reduction<Fold> data, int ranks)
      : length(data.elements / at(ranks)),
        divisible(data.run(0, length * at(ranks))),
        rest(data.run(divisible.elements, data.elements)) {}

  std::size_t length;
  reduction<Fold> divisible;
  reduction<Fold> rest;
};

/// Leaves the sum of each share on the rank that holds the share.
template <splitting_collective Inside, class Endpoint, class Fold>
task add_up_shares(Endpoint row, reduction<Fold> data) {
  const Inside within{};
  const equal_shares shares(data, row.size());
  const int last = row.size() - 1;
  if (shares.length > 0) {
    co_await within.reduce_scatter(row, shares.divisible);
  }
  if (shares.rest.elements == 0) {
    co_return;
  }
  if (row.rank() != last) {
    co_await row.send(last, shares.rest.all());
    co_return;
  }
  for (int rank = 0; rank < last; ++rank) {
    co_await row.receive_fold(rank, shares.rest.all(), data.fold);
  }
}

/// Spreads the sums of the shares to all ranks of the row.
template <splitting_collective Inside, class Endpoint, class Fold>
task gather_shares(Endpoint row, reduction<Fold> data) {
  const Inside within{};
  const equal_shares shares(data, row.size());
  const int last = row.size() - 1;
  if (shares.length > 0) {
    co_await within.all_gather(row, shares.divisible);
  }
  if (shares.rest.elements == 0) {
    co_return;
  }
  if (row.rank() != last) {
    co_await row.receive(last, shares.rest.all());
    co_return;
  }
  operations rests(at(last), [&](std::size_t rank) {
    return row.send(static_cast<int>(rank), shares.rest.all());
  });
  co_await all_of(rests);
}

/// Each row adds up its ranks' data, a share on each rank. Ranks that hold the same share in
/// different rows add those up, and then each row gathers its sum. A rank without a share sends its
/// data to another rank of its row and waits for the sum.
template <splitting_collective Inside, group_collective Across, class Endpoint, class Fold,
          class RowOf>
task all_reduce_in_rows(Endpoint self, reduction<Fold> data, RowOf row_of, shares_of_a_row how) {
  const Across between{};
  const rows all(self.rank(), self.size(), row_of);
  const auto inside = self.group(all.here());
  const bool one = how == shares_of_a_row::undivided ||
                   (how == shares_of_a_row::undivided_if_uneven && !all.even());
  const int shares = one ? 1 : all.shortest();
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
    if (all.place(rank) == mine) {
      across.add([&] { return rank; });
    }
  }
  co_await add_up_shares<Inside>(sharing, data);
  const std::size_t length = data.elements / at(shares);
  const auto own =
      data.run(length * at(mine), mine == shares - 1 ? data.elements : length * at(mine + 1));
  if (own.elements > 0) {
    co_await between.all_reduce(self.group(across.span()), own);
  }
  co_await gather_shares<Inside>(sharing, data);
  operations sums(at((inside.size() - 1 - mine) / shares), [&](std::size_t index) {
    return inside.send(mine + shares * static_cast<int>(index + 1), data.all());
  });
  co_await all_of(sums);
}

/// What hosts send each other in all_reduce_in_rows with rings inside hosts: as much as if each
/// host had one rank.
template <group_collective Across>
constexpr std::optional<exchange_cost> cost_between_hosts(int ranks, int per_host,
                                                          std::size_t elements,
                                                          shares_of_a_row how) {
  const int hosts = bound::hosts(ranks, per_host);
  const int first = bound::ranks_on(0, ranks, per_host);
  const int last = bound::ranks_on(hosts - 1, ranks, per_host);
  const bool one = how == shares_of_a_row::undivided ||
                   (how == shares_of_a_row::undivided_if_uneven && first != last);
  const int shares = one ? 1 : last;
  auto cost = cost_alone(Across{}, hosts, 1, elements);
  if (cost) {
    const std::size_t all = std::max<std::size_t>(elements, 1);
    const std::size_t rest = all % at(shares);  // sent by the first rank to the last
    const double share = static_cast<double>(all / at(shares)) / static_cast<double>(all);
    const int sums = (first - 1) / shares;  // sent to ranks without a share
    cost->between_hosts = true;
    cost->sent = (cost->sent + 2.0 * (shares - 1)) * share +
                 static_cast<double>(rest) / static_cast<double>(all) + sums;
  }
  return cost;
}

}  // namespace detail

}  // namespace tutti::collective
