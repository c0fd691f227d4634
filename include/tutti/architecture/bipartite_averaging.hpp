#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/architecture/peers.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/loops.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/plan.hpp"
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
  static constexpr tutti::carries carries = tutti::carries::parameters;
  static constexpr bool updates_first = true;  // others average with what the update left
  static constexpr bool ignores_compression = true;

  struct options {
    bipartite neighbours{bipartite::complete};
    std::uint64_t seed{1};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("neighbours", self.neighbours,
            "complete: an active rank averages with any passive one; ring: with the next ranks");
      visit("seed", self.seed, "who averages with whom in which step");
    }
  };

  static constexpr bool listens(const options&, int, int) { return true; }

  /// Passive ranks wait for no link, so none bounds the pace of all.
  static constexpr double busiest_nic(double, double, placement) { return 0; }

  template <class World>
  class state {
    using endpoint = typename World::endpoint;
    using message = typename World::message;

   public:
    /// Throws usage_error if two neighbours would both be active.
    state(World& world, const options& set)
        : world_(&world), set_(set), shelves_(is_active() ? 0 : world.planned().chunks.size()) {
      if (set.neighbours == bipartite::ring && world.size() % 2 == 1 && world.size() > 1) {
        throw usage_error(
            sentence({"architecture::bipartite_averaging: a ring of ", world.size(),
                      " ranks is not bipartite, for rank 0 and rank ", world.size() - 1,
                      " would both be active. Fix: an even number of ranks, or "
                      "neighbours complete"}));
      }
      if (!is_active()) {
        for (auto& each : copies_) {
          each = world.allocate_parallel();
        }
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
        world_->read_parameters(part, to_change(number, part));
      });
    }

    /// Throws communication_error if what comes is not as long as the chunk.
    task serve(endpoint self, message theirs) {
      const std::size_t bytes = world_->planned().chunks[theirs.number()].elements * sizeof(float);
      if (is_active() || theirs.bytes().size() != bytes) {
        throw communication_error(
            sentence({"rank ", theirs.peer(), " averages ", theirs.bytes().size(),
                      " bytes of chunk ", theirs.number(), ", which here are ",
                      is_active() ? 0 : bytes, ". Fix: give every rank the same options"}));
      }
      task& last = shelves_[theirs.number()].answered;
      last = answer(self, std::move(theirs), std::move(last));
      self.start(last);
      co_return;
    }

    bool at_rest() const {
      return loops::all_of(shelves_, [](const shelf& each) { return each.answered.done(); });
    }
    task finish() {
      for (auto& each : shelves_) {
        const task& answered = each.answered;
        co_await answered;
      }
    }

    void resume(std::uint64_t) {
      for (std::uint32_t number = 0; number < shelves_.size(); ++number) {
        const chunk& piece = world_->planned().chunks[number];
        shelves_[number].newest = 0;
        world_->read_parameters(piece, world_->part_of(span_of(copies_[0]), piece));
      }
    }
    /// What a passive rank will go on from, where nothing is on its way.
    std::vector<std::span<float>> memories() {
      for (std::uint32_t number = 0; number < shelves_.size(); ++number) {
        if (std::exchange(shelves_[number].newest, 0) == 1) {
          const chunk& piece = world_->planned().chunks[number];
          world_->copy(copy_of(0, piece), copy_of(1, piece));
        }
      }
      return {span_of(copies_[0])};
    }

   private:
    /// Which of the two copies of a chunk is what.
    struct shelf {
      static constexpr std::size_t none = 2;
      std::size_t newest = 0;
      std::size_t being_read = none;
      task answered{};  ///< the last of those who asked
    };

    bool is_active() const { return world_->rank() % 2 == 0; }
    bool asks() const { return is_active() && world_->size() > 1; }

    /// The mean with theirs becomes the newest copy, and what was the newest goes back.
    task answer(endpoint self, message theirs, task last) {
      {
        const task before = std::move(last);  // gone when it has ended, or all would hang together
        co_await before;
      }
      const std::uint32_t number = theirs.number();
      const int peer = theirs.peer();
      const chunk& piece = world_->planned().chunks[number];
      shelf& mine = shelves_[number];
      mine.being_read = mine.newest;
      mine.newest = 1 - mine.newest;
      const std::span<float> mean = copy_of(mine.newest, piece);
      {
        const message given = std::move(theirs);  // its sender goes on when it has been read
        world_->copy(mean, copy_of(mine.being_read, piece));
        world_->blend(mean, floats_of(given), 0.5f, 0.5f);
      }
      const auto* data = world_->phantom() ? nullptr : copy_of(mine.being_read, piece).data();
      const std::span<const float> model(data, piece.elements);
      co_await self.send(peer, std::as_bytes(model));
      mine.being_read = shelf::none;
    }
    static std::span<const float> floats_of(const message& given) {
      return {reinterpret_cast<const float*>(given.bytes().data()),
              given.bytes().size() / sizeof(float)};
    }

    std::span<float> copy_of(std::size_t which, const chunk& piece) {
      return world_->part_of(span_of(copies_[which]), piece);
    }
    std::span<float> averaged(std::uint32_t number, const chunk& part) {
      return copy_of(shelves_[number].newest, part);
    }
    /// Part of a chunk's newest copy, which nobody reads.
    std::span<float> to_change(std::uint32_t number, const chunk& part) {
      shelf& mine = shelves_[number];
      if (mine.being_read == mine.newest) {
        const chunk& piece = world_->planned().chunks[number];
        world_->copy(copy_of(1 - mine.newest, piece), copy_of(mine.newest, piece));
        mine.newest = 1 - mine.newest;
      }
      return copy_of(mine.newest, part);
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
    std::vector<shelf> shelves_;
    std::array<typename World::template memory<float>, 2> copies_{};
  };
};
static_assert(architecture_policy<bipartite_averaging>);

}  // namespace tutti::architecture
