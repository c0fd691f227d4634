#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "tutti/base/task.hpp"
#include "tutti/base/units.hpp"
#include "tutti/collective/exchange_with_all.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/collective.hpp"
#include "tutti/role/compression.hpp"
#include "tutti/role/launch.hpp"

namespace tutti::architecture {

/// A launch cut into one part for every rank. The parts' payloads lie in slots of the launch's
/// workspace. Where payloads vary in length, their lengths lie in front of the slots.
template <class Compression>
struct payload_parts {
  const launch<Compression>* whole;
  int ranks;

  payload_parts(const launch<Compression>& cut, int into) : whole(&cut), ranks(into) {
    std::size_t longest = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      longest = std::max(longest, elements(rank));
    }
    slot_ = slot(*whole->compression, longest);
  }

  static std::size_t workspace_bytes(const Compression& its, std::size_t elements, int ranks) {
    const std::size_t longest = part_begin(elements, at(ranks), 1);
    return lengths_bytes(ranks) + at(ranks) * slot(its, longest);
  }

  std::size_t begin(int rank) const {
    return whole->shares.empty()
               ? part_begin(whole->data.size(), at(ranks), at(rank), whole->worker.first_element)
               : whole->shares[at(rank)];
  }
  std::size_t elements(int rank) const { return begin(rank + 1) - begin(rank); }
  std::span<std::byte> room(int rank, std::size_t bytes) const {
    return whole->room(lengths_bytes(ranks) + at(rank) * slot_, bytes);
  }
  /// Encodes every part into its slot.
  template <class Queue>
  void encode(Queue& queue) const {
    for (int rank = 0; rank < ranks; ++rank) {
      const auto payload = whole->encode(queue, begin(rank), elements(rank),
                                         room(rank, whole->capacity(elements(rank))));
      if (facts::variable_length<Compression> && !whole->phantom()) {
        lengths()[rank] = payload.size();
      }
    }
  }
  std::span<std::byte> payload(int rank) const {
    return room(rank, facts::variable_length<Compression> && !whole->phantom()
                          ? lengths()[rank]
                          : expected(*whole->compression, elements(rank)));
  }

 private:
  std::size_t* lengths() const { return reinterpret_cast<std::size_t*>(whole->workspace.data()); }

  static std::size_t lengths_bytes(int ranks) {
    return facts::variable_length<Compression> ? round_up(at(ranks) * sizeof(std::size_t), 64) : 0;
  }
  static std::size_t slot(const Compression& its, std::size_t longest) {
    return round_up(std::max(most_bytes(its, longest), most_bytes(relay(its), longest)), 64);
  }

  std::size_t slot_{};  ///< bytes of a slot
};

/// Sends the payload of each part to the part's owner, and adds up all ranks' payloads of this
/// rank's own part in rank order. That part of `data` becomes their sum.
template <class Compression, class Endpoint>
task reduce_to_owners(Endpoint self, payload_parts<Compression> cut) {
  const launch<Compression>& what = *cut.whole;
  auto& queue = self.queue();
  const int mine = self.rank();
  cut.encode(queue);
  const auto payload_for = [cut](int rank) {
    return std::span<const std::byte>(cut.payload(rank));
  };
  const auto bytes_of_mine = [cut, mine](int) { return cut.whole->capacity(cut.elements(mine)); };
  const auto add = [&](int rank, std::span<const std::byte> theirs) {
    what.accumulate_from(queue, rank, rank == mine ? cut.payload(mine) : theirs, cut.begin(mine),
                         cut.elements(mine));
  };
  co_await collective::exchange_with_all(carrier_of<Compression>(self), payload_for, bytes_of_mine,
                                         add);
}

/// Encodes this rank's part of `data` and sends it to all other ranks. All of `data`, including
/// that part, becomes what the owners' payloads decode to.
template <class Compression, class Endpoint>
task gather_from_owners(Endpoint self, payload_parts<Compression> cut) {
  using answers = decltype(relay(*cut.whole->compression));
  const launch<Compression>& what = *cut.whole;
  auto& queue = self.queue();
  const int mine = self.rank();
  const auto answer = what.encode_mean(queue, cut.begin(mine), cut.elements(mine),
                                       cut.room(mine, what.mean_capacity(cut.elements(mine))));
  const auto to_all = [answer](int) { return std::span<const std::byte>(answer); };
  const auto bytes_from = [cut](int rank) { return cut.whole->mean_capacity(cut.elements(rank)); };
  const auto decode = [&](int rank, std::span<const std::byte> theirs) {
    what.decode_mean(queue, rank == mine ? answer : theirs, cut.begin(rank), cut.elements(rank));
  };
  co_await collective::exchange_with_all(carrier_of<answers>(self), to_all, bytes_from, decode);
}

}  // namespace tutti::architecture
