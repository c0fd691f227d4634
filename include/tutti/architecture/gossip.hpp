#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/architecture/peers.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/task.hpp"
#include "tutti/role/architecture.hpp"

namespace tutti::architecture {

/// Every rank keeps a model of its own. In each step it takes the mean of its own and its
/// neighbours' models, and then applies its own gradient, which was computed before:
///   x_i = sum over j of W_ij x_j, then the optimizer on rank i's gradient,
/// where W_ij is 1 / (1 + d) for j = i and for the d ranks j that send their models to i, else 0.
/// Rows and columns of W add up to 1, and a graph that is not connected is refused, so that without
/// gradients all models converge to their mean. Without an optimizer of the engine's, one of the
/// user's may follow `wait`.
/// Wire: the parameters, to two neighbours on a ring, to ceil(log2 p) on the exponential graph.
/// Cost: a buffer as large as the model, and a copy of each launch while it is on its way.
/// After: Lian et al., "Can decentralized algorithms outperform centralized algorithms?", NIPS
/// 2017; the exponential graph's weights are Ying et al.'s, NeurIPS 2021.
struct gossip {
  using role = tutti::role::architecture;
  static constexpr bool adds_payloads = false;
  static constexpr bool completes_alone = false;
  static constexpr bool stale = true;
  static constexpr tutti::carries carries = tutti::carries::parameters;
  static constexpr bool ignores_compression = true;

  struct options {
    architecture::topology topology{architecture::topology::ring};
    int hop{1};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("topology", self.topology,
            "who gets a model: ring: the next rank on either side; exponential: those 1, 2, 4, ... "
            "ahead");
      visit("hop", self.hop, "factor by which these distances are multiplied");
    }
  };

  static constexpr double busiest_nic(const options& set, double, double dense, placement who) {
    return circulant{set.topology, set.hop, who.workers}.leaving_a_host(who) * dense;
  }

  template <class World>
  class state {
   public:
    /// Throws usage_error if the graph is not connected.
    state(World& world, const options& set)
        : world_(&world), graph_{set.topology, set.hop, world.size()} {
      graph_.expect_connected("architecture::gossip");
    }

    std::size_t workspace_bytes(std::size_t elements) const { return sizeof(float) * elements; }
    float average() const { return 1.0f / static_cast<float>(1 + graph_.degree()); }

    void outgoing(const chunk& piece, std::span<float> buffer) {
      world_->read_parameters(piece, buffer);
    }
    task exchange(typename World::endpoint self, const typename World::launch& what) {
      const auto neighbours = static_cast<std::size_t>(graph_.degree());
      const int rank = self.rank();
      co_await add_neighbours(
          self, what, neighbours,
          [this, rank](std::size_t i) { return graph_.receiver(rank, static_cast<int>(i)); },
          neighbours,
          [this, rank](std::size_t i) { return graph_.sender(rank, static_cast<int>(i)); });
      what.scale(self.queue(), 0, what.data.size());
    }
    void incoming(const chunk& piece, std::span<float> buffer) {
      world_->write_parameters(piece, buffer);
    }
    void arrive(std::size_t position, std::uint64_t step) { world_->update_alone(position, step); }

   private:
    World* world_;
    circulant graph_;
  };
};
static_assert(architecture_policy<gossip>);

}  // namespace tutti::architecture
