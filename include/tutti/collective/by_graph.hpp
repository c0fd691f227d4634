#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tutti/base/all_of.hpp"
#include "tutti/base/task.hpp"
#include "tutti/collective/graphs.hpp"
#include "tutti/role/collective.hpp"

namespace tutti::collective {

/// Which of several pairs of graphs a piece takes.
enum class hash {
  name,   ///< by the sum of the squares of the characters of `part::TENSOR[BEGIN:END]`
  index,  ///< by its place among its bucket's pieces
};

/// The hashes' names, in the order of the enumerators.
constexpr std::array<std::string_view, 2> names(hash) { return {"name", "index"}; }

/// Each rank adds up what its children in one graph send and sends the sum to its parent; the total
/// travels from the root along another graph. If the topology has several such pairs of graphs, a
/// hash gives each piece of a tensor one of them. Children are added in rank order; KungFu adds
/// them in the order in which they come.
/// Wire: 2(p-1) times the bytes in all; a rank sends them once to its parent and once to each of
/// its children. Cost: as many messages in a row as the graphs are deep; a look at every rank.
/// After: KungFu's S-SGD and its `-strategy`, Mai et al., OSDI 2020, where pieces are even and at
/// most 1 MiB.
class by_graph {
 public:
  using role = tutti::role::collective;
  static constexpr bool rank_ordered = false;
  static constexpr bool ordered_start = false;

  struct options {
    collective::topology topology{collective::topology::binary_tree_star};
    collective::hash hash{collective::hash::name};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("topology", self.topology,
            "the graph that joins ranks: KungFu's -strategy in lower case, its AUTO as automatic");
      visit("hash", self.hash,
            "what decides which of several graphs a piece takes: its name or its index");
    }
  };

  constexpr by_graph() = default;
  explicit constexpr by_graph(const options& values) : options_(values) {}

  std::size_t scratch_bytes(std::size_t, std::size_t, int) const { return 0; }

  std::uint64_t route_of(const named_piece& piece) const {
    if (options_.hash == hash::index) {
      return piece.index;
    }
    return squares("part::") + squares(piece.tensor) + squares("[") + squares_of(piece.begin) +
           squares(":") + squares_of(piece.end) + squares("]");
  }

  template <class Endpoint, class Fold>
  task all_reduce(Endpoint self, reduction<Fold> data) const {
    return along(options_.topology, self, data);
  }

 private:
  template <class Endpoint, class Fold>
  static task along(collective::topology how, Endpoint self, reduction<Fold> data) {
    const graphs all(how, self.size(), [&](int rank) { return self.host_of(rank); });
    const int pair = static_cast<int>(data.route % at(all.pairs()));
    const int rank = self.rank();
    frame_array<int> children(at(self.size()));
    for (int peer = 0; peer < self.size(); ++peer) {
      if (peer != rank && all.reduce_parent(pair, peer) == rank) {
        co_await self.receive_fold(peer, data.all(), data.fold);
      }
      if (peer != rank && all.broadcast_parent(pair, peer) == rank) {
        children.add([&] { return peer; });
      }
    }
    if (all.reduce_parent(pair, rank) != rank) {
      co_await self.send(all.reduce_parent(pair, rank), data.all());
      co_await self.receive(all.broadcast_parent(pair, rank), data.all());
    }
    operations sends(children.size(),
                     [&](std::size_t index) { return self.send(children[index], data.all()); });
    co_await all_of(sends);
  }

  static constexpr std::uint64_t squares(std::string_view characters) {
    std::uint64_t sum = 0;
    for (const char each : characters) {
      const std::uint64_t code = static_cast<unsigned char>(each);
      sum += code * code;
    }
    return sum;
  }
  /// The squares of the digits of a number as it is written.
  static std::uint64_t squares_of(std::size_t number) {
    std::array<char, 20> digits;
    const char* const end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
    return squares({digits.data(), static_cast<std::size_t>(end - digits.data())});
  }

  options options_{};
};
static_assert(collective_policy<by_graph>);

}  // namespace tutti::collective
