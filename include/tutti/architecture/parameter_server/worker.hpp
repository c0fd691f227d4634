#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "tutti/architecture/parameter_server/rounds.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/task.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/transport.hpp"

namespace tutti::architecture {

/// A worker's half of a parameter server: it pushes a chunk to the chunk's server and pulls the
/// answer. Where the worker updates first, it pushes by how much its parameters have changed since
/// the last pull.
template <class Architecture, class World>
class parameter_server_worker {
  using compression = typename World::compression;
  using relay_type = typename World::relay_type;
  static constexpr bool plain = facts::identity<typename World::compression>;
  static constexpr bool pushes_differences = Architecture::updates_first;

 public:
  /// Throws usage_error if compression::select is to start at a later step than the first.
  explicit parameter_server_worker(World& world) : world_(&world) {
    if (first_chosen_step(world.compressor()) > 0) {
      throw usage_error(
          "compression::select: servers do not know the step in which it starts. Fix: set start = "
          "0, or use an architecture that all-reduces");
    }
    if constexpr (pushes_differences) {
      if (world.trains()) {
        pulled_ = world.allocate_parallel();
      }
    }
  }

  std::size_t workspace_bytes(const chunk& piece) const {
    if constexpr (!encodes_once<compression>) {
      const bool encodes = with_compressor(world_->compressor(), piece.chosen, [](const auto& its) {
        return !facts::identity<std::remove_cvref_t<decltype(its)>>;
      });
      return encodes ? longest_push(*world_, piece) : 0;
    } else {
      return plain ? 0
                   : std::max(capacity(world_->compressor(), piece.elements),
                              capacity(relay(world_->compressor()), piece.elements));
    }
  }

  void depart(std::size_t position, std::uint64_t step) { world_->update_alone(position, step); }

  void outgoing(const chunk& piece, std::span<float> buffer) {
    world_->read_parameters(piece, buffer);
    world_->subtract(buffer, pulled(piece));
  }

  task exchange(typename World::endpoint self, const typename World::launch& what) {
    if constexpr (selects<compression>) {
      return with_compressor(world_->compressor(), what.chosen, [&](const auto& its) {
        return have_added_selected(self, what.seen_by(its));
      });
    } else if constexpr (facts::in_rounds<compression>) {
      return have_added(self, what);
    } else {
      return push_and_pull(self, what);
    }
  }

  void incoming(const chunk& piece, std::span<float> buffer) {
    world_->write_parameters(piece, buffer);
    if constexpr (pushes_differences) {
      world_->copy(pulled(piece), buffer);
    }
  }

  /// Takes the model's parameters for those last pulled; the servers begin with the same.
  void resume() {
    if constexpr (pushes_differences) {
      if (world_->trains()) {
        for (const chunk& each : world_->planned().chunks) {
          world_->read_parameters(each, pulled(each));
        }
      }
    }
  }

 private:
  /// Takes the launch by value, because the one made for the chosen compressor is the caller's
  /// temporary.
  template <class C>
  task have_added_selected(typename World::endpoint self, launch<C> what) {
    co_await have_added(self, what);
  }

  /// Pushes a payload and pulls the sum of all workers' payloads, in every round.
  template <class C>
  task have_added(typename World::endpoint self, const launch<C>& what) {
    auto& queue = self.queue();
    const chunk& piece = world_->planned().chunks[what.number];
    auto service = self.on(channel::service);
    for (int round = 0; round < facts::rounds<C>; ++round) {
      const auto payload = payload_of(what, push_capacity(*world_, piece, round));
      if constexpr (facts::in_rounds<C>) {
        what.encode_round(queue, round, payload);
      } else if constexpr (!facts::identity<C>) {
        what.encode(queue, 0, what.data.size(), payload);
      }
      co_await service.send(what.placed_on, payload);
      // In the first round already: credit that waits for an answer may wait for ever.
      what.released();
      co_await self.receive(what.placed_on, payload);
      if constexpr (facts::in_rounds<C>) {
        if (round + 1 < facts::rounds<C>) {
          what.between(queue, round, payload);
        } else {
          what.decode(queue, payload, world_->workers());
        }
      } else {
        if constexpr (!facts::identity<C>) {
          what.decode(queue, payload, 0, what.data.size());
        }
        what.scale(queue, 0, what.data.size());
      }
    }
  }
  template <class C>
  static std::span<std::byte> payload_of(const launch<C>& what, std::size_t bytes) {
    return facts::identity<C> ? std::as_writable_bytes(what.data) : what.room(0, bytes);
  }

  /// Pushes one payload, and pulls the mean or the parameters.
  task push_and_pull(typename World::endpoint self, const typename World::launch& what) {
    auto& queue = self.queue();
    const std::size_t elements = what.data.size();
    const auto floats = std::as_writable_bytes(what.data);
    auto payload = floats;
    if (Architecture::divides_first) {
      what.scale(queue, 0, elements);
    }
    if constexpr (!plain) {
      payload = what.encode(queue, 0, elements, what.room(0, what.capacity()));
    }
    co_await self.on(channel::service).send(what.placed_on, payload);
    what.released();
    if constexpr (plain || Architecture::keeps_parameters) {
      co_await self.receive(what.placed_on, floats);
    } else {
      const std::size_t most = what.mean_capacity(elements);
      if constexpr (facts::variable_length<relay_type>) {
        const auto answer =
            co_await carrier_of<relay_type>(self).receive_loan(what.placed_on, most);
        take_mean(queue, what, answer.bytes());
      } else {
        const auto answer = what.room(0, most);
        co_await self.receive(what.placed_on, answer);
        take_mean(queue, what, answer);
      }
    }
  }

  template <class Queue>
  static void take_mean(Queue& queue, const typename World::launch& what,
                        std::span<const std::byte> answer) {
    what.decode_mean(queue, answer, 0, what.data.size());
  }
  std::span<float> pulled(const chunk& piece) { return world_->part_of(span_of(pulled_), piece); }

  World* world_;
  typename World::template memory<float> pulled_{};  ///< parameters as last pulled
};

}  // namespace tutti::architecture
