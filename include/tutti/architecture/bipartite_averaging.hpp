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

/// Which passive ranks an active one averages with.
enum class bipartite {
  complete,  ///< any of them
  ring,      ///< the next one on either side
};
constexpr std::array<std::string_view, 2> names(bipartite) { return {"complete", "ring"}; }

/// The passive rank that an active one averages with in a step.
constexpr int passive_of(bipartite graph, std::uint64_t seed, int rank, std::uint64_t step,
                         int size) {
  const std::uint64_t bits = drawn(seed, rank, step);
  if (graph == bipartite::complete) {
    return 2 * static_cast<int>(bits % static_cast<std::uint64_t>(size / 2)) + 1;
  }
  return (rank + (bits % 2 == 0 ? 1 : size - 1)) % size;
}

/// Every rank keeps a model of its own. In each step an active rank, those of even number, draws a
/// passive one, and both models become the mean of the two, in one go:
///   x_i, x_j = (x_i + x_j) / 2, then the optimizer on rank i's gradient.
/// A passive rank averages with whoever asks, at any moment, also while it computes, on what it
/// will go on from: its next step begins with all that has been averaged and applies its own
/// gradient, which was computed before. Nobody is in lock-step, and as nobody waits for an active
/// rank, no ring of ranks waits for each other. A mean is of one chunk; where it must be of the
/// model as a whole, fuse all tensors.
/// Wire: from active ranks the parameters, and as much back.
/// Cost: a buffer as large as the model, and two copies of it on passive ranks: one is read by
/// whoever asked last, one is where averages go on. Who asks a passive rank for the same chunk
/// meanwhile waits for that.
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
  static constexpr bool updates_first = true;  // others average with what the update left
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

  /// Passive ranks wait for no link, so none bounds the pace of all.
  static constexpr double busiest_nic(double, double, placement) { return 0; }

  template <class World>
  class state : public answers_in_turn<World> {
    using endpoint = typename World::endpoint;

   public:
    /// Throws usage_error if two neighbours would both be active.
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

    /// A gradient is as stale, chunk by chunk, as others have averaged with this rank since it had
    /// its model from the step before: 0 on active ranks.
    push_counts counted_pushes() const { return counts_; }

   private:
    /// Where a chunk has several tensors, as the first of them has it.
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

    /// What this rank will go on from, of a part of a chunk.
    std::span<float> averaged(std::uint32_t number, const chunk& part) {
      const std::size_t first = part.first_element - world_->planned().chunks[number].first_element;
      return world_->phantom() ? std::span<float>()
                               : this->kept_of(number).subspan(first, part.elements);
    }
    /// What a chunk holds of the tensor at a position.
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
    std::vector<std::uint64_t> read_;  ///< how often each chunk was drawn before the last step
    push_counts counts_{};
  };
};
static_assert(architecture_policy<bipartite_averaging>);

}  // namespace tutti::architecture
