#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string_view>

#include "tutti/base/all_of.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/task.hpp"
#include "tutti/role/architecture.hpp"

namespace tutti::architecture {

/// Returns random bits that are determined by a seed, a rank and a step.
constexpr std::uint64_t drawn(std::uint64_t seed, int rank, std::uint64_t step) {
  std::uint64_t bits = seed * 0x9e3779b97f4a7c15 + step * 0xbf58476d1ce4e5b9 +
                       (static_cast<std::uint64_t>(rank) + 1) * 0x94d049bb133111eb;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return bits ^ (bits >> 31);
}

/// Returns the rank that `rank` asks in a step. Every other rank is equally likely, except that the
/// next rank also takes the place of `rank` itself where that is drawn.
constexpr int pair_of(std::uint64_t seed, int rank, std::uint64_t step, int size) {
  const auto other = static_cast<int>(drawn(seed, rank, step) % static_cast<std::uint64_t>(size));
  return other == rank ? (rank + 1) % size : other;
}

/// To which ranks each rank sends its model. Places are counted around a circle of all ranks.
enum class topology {
  ring,         ///< to the next one on either side
  exponential,  ///< to those 1, 2, 4, ... places ahead, below the number of ranks
};
constexpr std::array<std::string_view, 2> names(topology) { return {"ring", "exponential"}; }

/// A topology among `size` ranks, with all distances multiplied by `hop`. It is a circulant graph,
/// which looks the same from every rank, so each rank receives as many models as it sends.
struct circulant {
  architecture::topology topology{};
  int hop{1};
  int size{1};

  /// Returns how many ranks each rank sends its model to.
  constexpr int degree() const {
    return topology == topology::ring
               ? std::min(2, size - 1)
               : static_cast<int>(std::bit_width(static_cast<unsigned>(size - 1)));
  }
  /// Returns how many places ahead of a rank its receiver number `index` is.
  constexpr int places(int index) const {
    const std::int64_t far =
        std::int64_t{hop % size} * (topology == topology::ring ? 1 : 1 << index);
    const int ahead = static_cast<int>(far % size);
    return topology == topology::ring && index == 1 ? size - ahead : ahead;
  }
  constexpr int receiver(int rank, int index) const { return (rank + places(index)) % size; }
  constexpr int sender(int rank, int index) const { return (rank + size - places(index)) % size; }

  /// Throws usage_error unless a path leads from every rank to every other one.
  [[gnu::cold]] void expect_connected(std::string_view whose) const {
    if (const int groups = hop < 1 ? size : std::gcd(hop, size); groups != 1) {
      throw usage_error(
          sentence({whose, ": with hop ", hop, ", ", size, " ranks fall into ", groups,
                    " groups that never exchange anything. Fix: use a hop that shares no factor "
                    "with the number of ranks, such as 1"}));
    }
  }

  /// Returns how many models leave the first host in a step: one for each of its ranks and each
  /// receiver on another host.
  constexpr int leaving_a_host(placement who) const {
    const int here = bound::ranks_on(0, who.workers, who.per_host);
    int leaving = 0;
    for (int rank = 0; rank < here; ++rank) {
      for (int index = 0; index < degree(); ++index) {
        leaving += receiver(rank, index) < here ? 0 : 1;
      }
    }
    return leaving;
  }
};

namespace detail {

template <class Endpoint, class Launch, class Loans>
task add_each(Endpoint self, const Launch& what, Loans& loans, std::size_t count) {
  for (std::size_t each = 0; each < count; ++each) {
    auto& next = loans.next();
    const auto theirs = co_await next;
    what.accumulate(self.queue(), theirs.bytes(), 0, what.data.size());
  }
}

}  // namespace detail

/// Sends a launch's data to the ranks to(0), to(1), ..., to(receivers - 1), and adds to it the data
/// of the ranks from(0), from(1), ..., from(senders - 1), in that order. All messages begin at the
/// same time. What is sent is a copy in the launch's workspace.
template <class Endpoint, class Launch, class To, class From>
task add_neighbours(Endpoint self, const Launch& what, std::size_t receivers, To to,
                    std::size_t senders, From from) {
  const std::span<std::byte> own = what.room(0, sizeof(float) * what.data.size());
  charge(self.queue(), 2 * own.size());
  if (!what.phantom()) {
    self.queue().copy(own.data(), what.data.data(), own.size());
  }
  operations sends(receivers, [&](std::size_t index) {
    return self.send(to(index), std::span<const std::byte>(own));
  });
  operations loans(senders,
                   [&](std::size_t index) { return self.receive_loan(from(index), own.size()); });
  co_await all_of(sends, all_of(loans, detail::add_each(self, what, loans, senders)));
}

}  // namespace tutti::architecture
