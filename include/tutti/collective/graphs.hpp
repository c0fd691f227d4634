#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

#include "tutti/base/all_of.hpp"
#include "tutti/role/collective.hpp"

namespace tutti::collective {

/// Which ranks send to which, by the names of KungFu's `-strategy`. A host's master is its first
/// rank. Where masters are joined, the other ranks are joined with the master of their host. There
/// is one pair of graphs; or one for each rank, or master, which is its root.
enum class topology {
  star,                    ///< rank 0 with all
  multi_star,              ///< each master with all masters
  ring,                    ///< for each rank a row that ends there, and one that begins there
  clique,                  ///< each rank with all
  tree,                    ///< the first master with all masters
  binary_tree,             ///< ranks in a binary tree
  binary_tree_star,        ///< masters in a binary tree
  multi_binary_tree_star,  ///< masters in a binary tree from each of them on
  automatic,               ///< KungFu's AUTO: `star` on one host, otherwise `binary_tree_star`
  /// For each master a row of masters that ends there, and one that begins there: KungFu's local
  /// reduce, cross all-reduce and local broadcast under RING. Under any other name of its those
  /// three come to `binary_tree_star`.
  ring_star,
};

/// In the order of the enumerators.
constexpr std::array<std::string_view, 10> names(topology) {
  return {"star",
          "multi_star",
          "ring",
          "clique",
          "tree",
          "binary_tree",
          "binary_tree_star",
          "multi_binary_tree_star",
          "automatic",
          "ring_star"};
}

/// A topology's pairs of graphs among ranks on known hosts. Both graphs of a pair are trees with
/// one root: from child to parent of one the sums travel, from parent to child of the other their
/// total.
/// Cost: a look at every rank for its host when made, a few operations an answer.
/// After: KungFu's topologies, Mai et al., OSDI 2020.
class graphs {
 public:
  /// Rank `r` lives on host `host_of(r)`; hosts have small numbers from 0 on.
  template <class HostOf>
  graphs(topology how, int ranks, HostOf host_of) : nodes_(at(ranks)), node_of_(at(ranks)) {
    int hosts = 0;
    bool several = false;
    for (int rank = 0; rank < ranks; ++rank) {
      hosts = std::max(hosts, host_of(rank) + 1);
      several = several || host_of(rank) != host_of(0);
    }
    arranged_ = arrangement_of(how, several);
    if (!arranged_.by_host) {
      hosts = ranks;
    }
    frame_array<int> node_on(at(hosts));
    for (int host = 0; host < hosts; ++host) {
      node_on.add([] { return none; });
    }
    for (int rank = 0; rank < ranks; ++rank) {
      int& node = node_on[at(arranged_.by_host ? host_of(rank) : rank)];
      if (node == none) {
        node = nodes();
        nodes_.add([&] { return rank; });
      }
      node_of_.add([&] { return node; });
    }
  }

  int pairs() const { return arranged_.turns ? nodes() : 1; }
  /// To whom `rank` sends its sum; its own number where it is the root.
  int reduce_parent(int pair, int rank) const { return parent(pair, rank, 1); }
  /// From whom `rank` hears the sum of all; its own number where it is the root.
  int broadcast_parent(int pair, int rank) const { return parent(pair, rank, -1); }

 private:
  static constexpr int none = -1;

  enum class shape { star, binary_tree, row };
  struct arrangement {
    shape joined{};
    bool by_host{};  ///< nodes are masters, otherwise all ranks
    bool turns{};    ///< each node is the root of a pair
  };

  static constexpr arrangement arrangement_of(topology how, bool several_hosts) {
    switch (how) {
      case topology::star:
        return {.joined = shape::star};
      case topology::multi_star:
        return {.joined = shape::star, .by_host = true, .turns = true};
      case topology::ring:
        return {.joined = shape::row, .turns = true};
      case topology::clique:
        return {.joined = shape::star, .turns = true};
      case topology::tree:
        return {.joined = shape::star, .by_host = true};
      case topology::binary_tree:
        return {.joined = shape::binary_tree};
      case topology::binary_tree_star:
        return {.joined = shape::binary_tree, .by_host = true};
      case topology::multi_binary_tree_star:
        return {.joined = shape::binary_tree, .by_host = true, .turns = true};
      case topology::ring_star:
        return {.joined = shape::row, .by_host = true, .turns = true};
      case topology::automatic:
        return several_hosts ? arrangement_of(topology::binary_tree_star, true)
                             : arrangement_of(topology::star, false);
    }
    return {};
  }

  int nodes() const { return static_cast<int>(nodes_.size()); }

  /// In a row, the one so many places on; places are counted from the pair's root.
  int parent(int pair, int rank, int along_row) const {
    const int node = node_of_.span()[at(rank)];
    const int master = nodes_.span()[at(node)];
    const int place = (node - pair + nodes()) % nodes();
    if (rank != master || place == 0) {
      return master;
    }
    const int above = arranged_.joined == shape::star          ? 0
                      : arranged_.joined == shape::binary_tree ? (place - 1) / 2
                                                               : place + along_row;
    return nodes_.span()[at((above + pair) % nodes())];
  }

  frame_array<int> nodes_;    // the rank that is each node, in rank order
  frame_array<int> node_of_;  // each rank's own, or its master's
  arrangement arranged_{};
};

}  // namespace tutti::collective
