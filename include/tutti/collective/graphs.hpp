#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

#include "tutti/base/all_of.hpp"
#include "tutti/role/collective.hpp"

namespace tutti::collective {

/// Which ranks send to which, by the names of KungFu's `-strategy`. A host's master is its first
/// rank. Where a topology joins masters, the other ranks of a host are joined with its master. A
/// topology is one pair of graphs, or one pair for each rank or each master, with that as its root.
enum class topology {
  star,                    ///< rank 0 with all ranks
  multi_star,              ///< each master with all masters
  ring,                    ///< for each rank a row that ends at it, and one that begins at it
  clique,                  ///< each rank with all ranks
  tree,                    ///< the first master with all masters
  binary_tree,             ///< ranks in a binary tree
  binary_tree_star,        ///< masters in a binary tree
  multi_binary_tree_star,  ///< for each master a binary tree of masters with it as root
  automatic,               ///< KungFu's AUTO: `star` on one host, otherwise `binary_tree_star`
  /// For each master a row of masters that ends at it, and one that begins at it: KungFu's local
  /// reduce, cross all-reduce and local broadcast under RING. Under any other of KungFu's names
  /// those three amount to `binary_tree_star`.
  ring_star,
};

/// The topologies' names, in the order of the enumerators.
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
/// the same root. Along one of them sums travel from child to parent, and along the other their
/// total travels from parent to child.
/// Cost: a look at every rank's host when it is made, a few operations for each answer.
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
  /// The rank to which `rank` sends its sum; `rank` itself at the root.
  int reduce_parent(int pair, int rank) const { return parent(pair, rank, 1); }
  /// The rank from which `rank` receives the total; `rank` itself at the root.
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

  /// The parent of `rank`; in a row, that is `along_row` places on. Places count from the pair's
  /// root.
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

  frame_array<int> nodes_;    // each node's rank, in rank order
  frame_array<int> node_of_;  // each rank's node, or its master's
  arrangement arranged_{};
};

}  // namespace tutti::collective
