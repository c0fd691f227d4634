#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tutti/architecture/answers_in_turn.hpp"
#include "tutti/architecture/peers.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/push_counts.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/task.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/transport.hpp"

namespace tutti::architecture {

/// Which passive (odd) ranks an active (even) rank may average with.
enum class bipartite {
  complete,  ///< all of them
  ring,      ///< the next rank on either side
};
constexpr std::array<std::string_view, 2> names(bipartite) { return {"complete", "ring"}; }

/// Returns the passive rank that an active rank averages with in a step.
constexpr int passive_of(bipartite graph, std::uint64_t seed, int rank, std::uint64_t step,
                         int size) {
  const std::uint64_t bits = drawn(seed, rank, step);
  if (graph == bipartite::complete) {
    return 2 * static_cast<int>(bits % static_cast<std::uint64_t>(size / 2)) + 1;
  }
  return (rank + (bits % 2 == 0 ? 1 : size - 1)) % size;
}

/// Every rank keeps a model of its own. In each step an active rank (of even number) draws a
/// passive rank (of odd number), and both models become the mean of the two in one exchange:
///   x_i, x_j = (x_i + x_j) / 2, then the optimizer on rank i's gradient.
/// A passive rank averages with every active rank that asks, at any moment, even while it computes.
/// It averages into a second copy of its model. At the end of its step it takes over that copy and
/// applies its own gradient, which was computed on the older parameters. Ranks do not run in
/// lock-step, and as no rank waits for an active one, there is no cycle of ranks that wait for each
/// other. Each average is of one chunk; where the whole model must be averaged at once, fuse all
/// tensors.
/// Wire: the parameters from each active rank, and as much back.
/// Cost: a buffer as large as the model, and on passive ranks two copies of the model or more:
/// averages are made in one, and replies are sent from the others, each from one of its own.
/// After: Lian et al., "Asynchronous decentralized parallel stochastic gradient descent", ICML
/// 2018.
struct bipartite_averaging {
  using role = tutti::role::architecture;
  static constexpr bool adds_payloads = false;
  static constexpr bool completes_alone = true;
  static constexpr bool receives_from_any = true;
  static constexpr bool stale = true;
  static constexpr bool waits_for_nobody = true;
  static constexpr tutti::carries carries = tutti::carries::parameters;
  static constexpr bool updates_first = true;  // peers average with the updated parameters
  static constexpr bool ignores_compression = true;

  struct options {
    bipartite neighbours{bipartite::complete};
    std::uint64_t seed{1};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit(
          "neighbours", self.neighbours,
          "complete: an active rank averages with any passive one; ring: only with its neighbours");
      visit("seed", self.seed, "decides who averages with whom in which step");
    }
  };

  static constexpr bool listens(const options&, int, int) { return true; }

  /// Returns 0: passive ranks wait for no link, so no NIC bounds the pace of all ranks.
  static constexpr double busiest_nic(double, double, placement) { return 0; }

  template <class World>
  class state : public answers_in_turn<World> {
    using endpoint = typename World::endpoint;

   public:
    /// Throws usage_error if two neighbours would both be active, as in a ring of an odd number of
    /// ranks.
    state(World& world, const options& set)
        : answers_in_turn<World>(world, 0.5f, is_passive(world)),
          world_(&world),
          set_(set),
          read_(world.planned().chunks.size()) {
      if (set.neighbours == bipartite::ring && world.size() % 2 == 1 && world.size() > 1) {
        throw usage_error(sentence(
            {"architecture::bipartite_averaging: a ring of ", world.size(),
             " ranks is not bipartite, because rank 0 and rank ", world.size() - 1,
             " would both be active. Fix: use an even number of ranks, or neighbours = complete"}));
      }
    }

    std::size_t workspace_bytes(std::size_t) const { return 0; }

    void outgoing(const chunk& piece, std::span<float> buffer) {
      if (asks()) {
        world_->read_parameters(piece, buffer);
      }
    }
    task exchange(endpoint self, const typename World::launch& what) {
      if (!asks()) {
        co_return;
      }
      const int peer = passive_of(set_.neighbours, set_.seed, self.rank(), what.step, self.size());
      co_await self.on(channel::service).send(peer, std::as_bytes(what.data));
      what.released();
      co_await self.receive(peer, std::as_writable_bytes(what.data));
    }
    void incoming(const chunk& piece, std::span<float> theirs) {
      if (asks()) {
        world_->mix_parameters(piece, theirs, 0.5f);
      }
    }

    void arrive(std::size_t position, std::uint64_t step) {
      count(position);
      if (is_active()) {
        world_->update_alone(position, step);
        return;
      }
      world_->for_each_chunk(position, [&](std::uint32_t number) {
        const chunk part = part_of(number, position);
        world_->write_parameters(part, averaged(number, part));
      });
      world_->update_alone(position, step);
      world_->for_each_chunk(position, [&](std::uint32_t number) {
        const chunk part = part_of(number, position);
        world_->read_parameters(part, averaged(number, part));
      });
    }

    /// Returns the kept parameters, in the order of their places, which no fusion changes.
    std::vector<std::span<float>> memories() {
      std::vector<std::span<float>> all;
      for (const std::uint32_t number : world_->planned().chunks_by_place()) {
        all.push_back(this->kept_of(number));
      }
      return all;
    }

    /// Returns the staleness of this rank's own gradients, chunk by chunk: how often other ranks
    /// have averaged with it since it took over its model in the step before. Active ranks have 0.
    push_counts counted_pushes() const { return counts_.read(); }

   private:
    /// Counts the staleness of each chunk whose first element is this tensor's, so that a chunk of
    /// several tensors counts once.
    void count(std::size_t position) {
      world_->for_each_chunk(position, [&](std::uint32_t number) {
        if (part_of(number, position).first_element ==
            world_->planned().chunks[number].first_element) {
          const std::uint64_t drawn = this->times_drawn(number);
          counts_.take(drawn - read_[number]);
          read_[number] = drawn;
        }
      });
    }
    bool is_active() const { return world_->rank() % 2 == 0; }
    bool asks() const { return is_active() && world_->size() > 1; }
    static auto is_passive(const World& world) {
      return [&world](const chunk&) { return world.rank() % 2 == 1; };
    }

    /// Returns the averaged parameters of a part of a chunk, which this rank takes over at its
    /// step's end.
    std::span<float> averaged(std::uint32_t number, const chunk& part) {
      const std::size_t first = part.first_element - world_->planned().chunks[number].first_element;
      return world_->phantom() ? std::span<float>()
                               : this->kept_of(number).subspan(first, part.elements);
    }
    /// Returns the part of a chunk that belongs to the tensor at a position.
    chunk part_of(std::uint32_t number, std::size_t position) const {
      const plan& made = world_->planned();
      chunk part = made.chunks[number];
      const std::size_t end =
          std::min(part.first_element + part.elements, made.first_element[position + 1]);
      part.first_element = std::max(part.first_element, made.first_element[position]);
      part.elements = end - part.first_element;
      return part;
    }

    World* world_;
    options set_;
    std::vector<std::uint64_t> read_;  ///< times_drawn of each chunk at the last step
    push_counter counts_{};
  };
};
static_assert(architecture_policy<bipartite_averaging>);

}  // namespace tutti::architecture
