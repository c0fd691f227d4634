#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tutti/architecture/peers.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/task.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/transport.hpp"

namespace tutti::architecture {

/// Every rank keeps a model of its own. In each step it asks one other rank for the model which
/// that rank saved last, moves its own half-way towards it, applies its own gradient, and saves the
/// result for others to ask for. Ranks do not run in lock-step: a slow rank serves an older model,
/// and answers while it computes. The model received is consistent chunk by chunk; where it must be
/// consistent as a whole, fuse all tensors.
/// Wire: an empty request, and the parameters back.
/// Cost: a buffer as large as the model, and two saved copies of it; a save overwrites one that is
/// not being sent.
/// After: Lian et al., "Asynchronous decentralized parallel SGD", ICML 2018; KungFu's
/// PairAveraging, Mai et al., OSDI 2020.
struct pair_averaging {
  using role = tutti::role::architecture;
  static constexpr bool adds_payloads = false;
  static constexpr bool completes_alone = true;
  static constexpr bool receives_from_any = true;
  static constexpr bool stale = true;
  static constexpr bool waits_for_nobody = true;
  static constexpr tutti::carries carries = tutti::carries::parameters;
  static constexpr bool mixes_late = true;
  static constexpr bool ignores_compression = true;

  struct options {
    std::uint64_t seed{1};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("seed", self.seed, "decides who asks whom in which step");
    }
  };

  static constexpr bool listens(const options&, int, int) { return true; }

  /// Returns a model's bytes if each host has one rank, which pulls a model in each step. With
  /// several ranks on a host it returns 0, because each may draw a neighbour on its own host every
  /// time.
  static constexpr double busiest_nic(double, double dense, placement who) {
    return who.workers < 2 || who.per_host > 1 ? 0 : dense;
  }
  /// Returns the cost of a request and a model, for ranks that ask at the same moment.
  static constexpr exchange_cost alone(placement) { return {2, 1}; }

  template <class World>
  class state {
    using endpoint = typename World::endpoint;

   public:
    state(World& world, const options& set)
        : world_(&world), seed_(set.seed), chunks_(world.planned().chunks.size()) {
      const plan& made = world.planned();
      for (std::uint32_t number = 0; number < chunks_.size(); ++number) {
        kept_chunk& mine = chunks_[number];
        for (copy& each : mine.copies) {
          each.parameters = world.template allocate<float>(made.chunks[number].elements);
        }
        for (const std::size_t position : made.tensors_of(made.chunks[number])) {
          mine.tensors += made.holds_some(made.chunks[number], position);
        }
        mine.tensors_left = mine.tensors;
      }
    }

    std::size_t workspace_bytes(std::size_t) const { return 0; }

    /// Writes nothing, because the peer's model is received into the buffer.
    void outgoing(const chunk&, std::span<float>) {}

    task exchange(endpoint self, const typename World::launch& what) {
      if (self.size() > 1) {
        const int peer = pair_of(seed_, self.rank(), what.step, self.size());
        const std::span<const std::byte> request;
        co_await self.on(channel::service).send(peer, request);
        what.released();
        co_await self.receive(peer, std::as_writable_bytes(what.data));
      }
    }

    void incoming(const chunk& piece, std::span<float> buffer) {
      if (world_->size() > 1) {
        world_->mix_parameters(piece, buffer, 0.5f);
      }
    }

    void arrive(std::size_t position, std::uint64_t step) {
      world_->update_alone(position, step);
      world_->for_each_chunk(position, [this](std::uint32_t number) {
        kept_chunk& mine = chunks_[number];
        if (--mine.tensors_left == 0) {
          mine.tensors_left = mine.tensors;
          save(mine, world_->planned().chunks[number]);
        }
      });
    }

    task serve(endpoint self, typename World::message asked) {
      world_->beside(answer(self, asked.peer(), asked.number()));
      co_return;
    }

    void resume(std::uint64_t) {
      for (std::uint32_t number = 0; number < chunks_.size(); ++number) {
        save(chunks_[number], world_->planned().chunks[number]);
      }
    }

   private:
    struct copy {
      typename World::template memory<float> parameters{};
      std::size_t readers{};  ///< replies that are being sent from it
    };
    struct kept_chunk {
      std::array<copy, 2> copies{};
      std::size_t newest{};
      std::size_t tensors{};
      std::size_t tensors_left{};
    };

    static bool is_free(const copy& each) { return each.readers == 0; }
    /// Saves a chunk's parameters in a copy that no reply is being sent from. If there is none, it
    /// saves nothing, and peers go on receiving the older model.
    void save(kept_chunk& mine, const chunk& piece) {
      const std::size_t other = 1 - mine.newest;
      if (!is_free(mine.copies[mine.newest])) {
        if (!is_free(mine.copies[other])) {
          return;
        }
        mine.newest = other;
      }
      world_->read_parameters(piece, span_of(mine.copies[mine.newest].parameters));
    }

    task answer(endpoint self, int peer, std::uint32_t number) {
      copy& read = chunks_[number].copies[chunks_[number].newest];
      const std::size_t bytes = world_->planned().chunks[number].elements * sizeof(float);
      const auto* data = world_->phantom() ? nullptr : read.parameters.data();
      const std::span<const std::byte> model(reinterpret_cast<const std::byte*>(data), bytes);
      ++read.readers;
      co_await self.send(peer, model);
      --read.readers;
    }

    World* world_;
    std::uint64_t seed_;
    std::vector<kept_chunk> chunks_;
  };
};
static_assert(architecture_policy<pair_averaging>);

}  // namespace tutti::architecture
