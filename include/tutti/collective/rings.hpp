#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "tutti/base/all_of.hpp"
#include "tutti/base/cost.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/task.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/collective/rows.hpp"
#include "tutti/role/collective.hpp"

namespace tutti::collective {

/// Several rings at once, each for a share of the data. All go from host to host in one order, but
/// in each ring the ranks of a host are rotated, so that another of them sends to the next host.
/// Wire: 2(p-1)/p of the bytes from every rank, as in one ring, in 2(p-1) messages a ring. Cost:
/// the ring's; several links of a host are busy at once; a look at every rank's host.
/// After: TensorFlow's build_ring_all_reduce, tf_cnn_benchmarks' `xring#shards`, which refuses more
/// rings than a host has ranks; here there are at most as many as the smallest host has ranks.
class rings {
 public:
  using role = tutti::role::collective;
  static constexpr bool rank_ordered = false;
  static constexpr bool ordered_start = false;

  struct options {
    std::uint64_t shards{1};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("shards", self.shards, "rings that run at once, at most as many as a host has ranks");
    }
  };

  constexpr rings() = default;
  /// Throws usage_error for no ring at all.
  explicit constexpr rings(const options& values) : options_(values) {
    if (values.shards == 0) {
      throw usage_error("collective::rings: shards must not be 0. Fix: use at least 1 shard");
    }
  }

  static constexpr std::optional<exchange_cost> alone(int ranks, int, std::size_t) {
    return ring::alone(ranks);
  }
  std::size_t scratch_bytes(std::size_t, std::size_t, int) const { return 0; }

  template <class Endpoint, class Fold>
  task all_reduce(Endpoint self, reduction<Fold> data) const {
    return around(options_.shards, self, data);
  }

 private:
  struct place {
    int here;   ///< this rank's place in the ring
    int left;   ///< the rank before it
    int right;  ///< the rank after it
  };

  template <class Endpoint, class Fold>
  static task around(std::uint64_t shards, Endpoint self, reduction<Fold> data) {
    const int ranks = self.size();
    const detail::rows hosts(self.rank(), ranks, [&](int rank) { return self.host_of(rank); });
    const auto all = static_cast<int>(std::min(shards, std::uint64_t(hosts.shortest())));
    frame_array<place> places(at(all));
    for (int ring = 0; ring < all; ++ring) {
      places.add([&] { return place_in(ring, all, self, hosts); });
    }
    const auto part = [&](std::size_t ring, int index) {
      const int segment = (index + 2 * ranks) % ranks;
      return data.part(at(ranks * all), at(segment * all) + ring);
    };
    for (int step = 1; step < ranks; ++step) {
      operations sums(at(all), [&](std::size_t ring) {
        const auto [here, left, right] = places[ring];
        return self.exchange_fold(right, part(ring, here - step), left, part(ring, here - step - 1),
                                  data.fold);
      });
      co_await all_of(sums);
    }
    for (int step = 0; step < ranks - 1; ++step) {
      operations copies(at(all), [&](std::size_t ring) {
        const auto [here, left, right] = places[ring];
        return self.exchange(right, part(ring, here - step), left, part(ring, here - step - 1));
      });
      co_await all_of(copies);
    }
  }

  /// Returns this rank's place in one ring of `all`. Hosts follow each other by their number; in
  /// each next ring a host's ranks begin with a later one.
  template <class Endpoint>
  static place place_in(int ring, int all, const Endpoint& self, const detail::rows& hosts) {
    frame_array<int> begins(at(hosts.count()));
    for (int host = 0, begin = 0; host < hosts.count(); begin += hosts.length(host++)) {
      begins.add([&] { return begin; });
    }
    const auto here = [&](int rank) {
      const int host = self.host_of(rank);
      const int ranks = hosts.length(host);
      const int first = ring * std::max(1, ranks / all) % ranks;
      return begins[at(host)] + (hosts.place(rank) + ranks - first) % ranks;
    };
    const int mine = here(self.rank());
    place found{mine, 0, 0};
    for (int rank = 0; rank < self.size(); ++rank) {
      const int after = (here(rank) + self.size() - mine) % self.size();
      found.right = after == 1 % self.size() ? rank : found.right;
      found.left = after == self.size() - 1 ? rank : found.left;
    }
    return found;
  }

  options options_{};
};
static_assert(collective_policy<rings>);

}  // namespace tutti::collective
