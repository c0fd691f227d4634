#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "tutti/architecture/mean.hpp"
#include "tutti/base/bounds.hpp"
#include "tutti/base/cost.hpp"
#include "tutti/base/options.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/wire.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/collective.hpp"

namespace tutti::architecture {

/// Adds up the payloads of a summable compressor inside a collective. A payload is a sequence of
/// elements of 1, 2, 4 or 8 bytes each, so any piece of `unit` bytes holds whole elements.
template <class Compression>
struct payload_fold {
  static constexpr std::size_t unit = 64;
  const Compression* compression;

  template <class Queue>
  void operator()(Queue& queue, std::byte* into, const std::byte* from, std::size_t bytes) const {
    compression->fold(queue, wire{into, bytes}, const_wire(from, bytes));
  }
  template <class Queue, std::size_t Count>
  void everywhere(Queue& queue, const std::array<std::byte*, Count>& all,
                  std::size_t bytes) const requires requires(const std::array<wire, Count>& wires) {
    compression->fold_everywhere(queue, wires);
  }
  {
    std::array<wire, Count> wires;
    std::transform(all.begin(), all.end(), wires.begin(), [bytes](std::byte* each) {
      return wire{each, bytes};
    });
    compression->fold_everywhere(queue, wires);
  }
};

/// Every rank holds all parameters, and a collective adds up the payloads on their way.
/// Wire: as the collective, for payloads of the compressor's size.
/// After: Horovod, Sergeev and Del Balso, 2018; with mean::before, PyTorch's
/// DistributedDataParallel; with mean::none, tf_cnn_benchmarks' `replicated` and tensorpack's
/// SyncMultiGPUTrainerReplicated with average=False.
template <collective_policy Collective = collective::ring, mean Mean = mean::after>
struct all_reduce {
  using role = tutti::role::architecture;
  using collective = Collective;
  using options = options_of<Collective>;
  static constexpr bool adds_payloads = true;
  // Compressors of several rounds make the mean when they decode the last sum.
  static constexpr bool adds_in_rounds = Mean == mean::after;
  static constexpr bool divides_first = Mean == mean::before;
  static constexpr bool leaves_sums = Mean == mean::none;
  static constexpr bool completes_alone = false;
  static constexpr bool ordered_start = Collective::ordered_start;
  static constexpr bool has_halves = splitting_collective<Collective>;

  static constexpr double busiest_nic(double payload, double, placement who) {
    if constexpr (requires { Collective::share_of_bytes; }) {
      return Collective::share_of_bytes * bound::all_reduce(payload, who.hosts());
    } else {
      return bound::all_reduce(payload, who.hosts());
    }
  }
  static constexpr exchange_cost alone(placement who) requires requires { Collective::alone(1); }
  { return Collective::alone(who.workers); }
  static constexpr std::optional<exchange_cost> alone(const options& set, placement who,
                                                      std::size_t elements) requires(!requires {
    Collective::alone(1);
  }) {
    return cost_alone(make_policy<Collective>(set), who.workers, who.per_host, elements);
  }

  /// Returns the name of the collective that a chunk of so many elements goes by, where the
  /// collective chooses one by size.
  static std::string way_of(const options& set, std::size_t elements) requires
      requires(const Collective& its) {
    its.way_of(elements);
  }
  { return make_policy<Collective>(set).way_of(elements); }

  template <class World>
  class state {
    using compressor = typename World::compression;

   public:
    state(World& world, const options& set)
        : world_(&world), collective_(make_policy<Collective>(set)) {
      if constexpr (facts::has_routes<Collective>) {
        find_routes();
      }
    }

    std::size_t workspace_bytes(std::size_t elements) const requires encodes_once<compressor> {
      return workspace_of(world_->compressor(), elements);
    }
    std::size_t workspace_bytes(const chunk& piece) const {
      return most_of_steps(world_->compressor(), piece.chosen, [&](const auto& its) {
        if constexpr (facts::in_rounds<std::remove_cvref_t<decltype(its)>>) {
          return workspace_of(its, world_->tensor_of(piece));
        } else {
          return workspace_of(its, piece.elements);
        }
      });
    }

    float average() const { return average_of_gradients<Mean>(*world_); }

    task exchange(typename World::endpoint self, const typename World::launch& what) {
      if constexpr (selects<compressor>) {
        return with_compressor(world_->compressor(), what.chosen, what.step, [&](const auto& its) {
          return add_up_selected(self, what.seen_by(its));
        });
      } else {
        return add_up(self, what);
      }
    }

   private:
    /// Takes the launch by value, because the one made for the chosen compressor is the caller's
    /// temporary.
    template <class C>
    task add_up_selected(typename World::endpoint self, launch<C> what) const {
      co_await add_up(self, what);
    }

    template <class C>
    task add_up(typename World::endpoint self, const launch<C>& what) const {
      constexpr bool encoded = !facts::identity<C>;
      auto& queue = self.queue();
      if (divides_first) {
        what.scale(queue, 0, what.data.size());
      }
      if (encoded) {
        what.encode(queue, 0, what.data.size(), sum_of(what).all());
      }
      if constexpr (World::splits_phases) {
        const auto sum = sum_of(what);
        co_await collective_.reduce_scatter(self, sum);
        co_await what.between_halves();
        co_await collective_.all_gather(self, sum);
      } else {
        const task adding = add_up_all(self, what);
        co_await adding;
      }
      if (encoded) {
        what.decode(queue, sum_of(what).all(), 0, what.data.size());
      }
      if (!divides_first) {
        what.scale(queue, 0, what.data.size());
      }
    }

    template <class C>
    auto sum_of(const launch<C>& what) const {
      auto sum = reduction_of(what, what.data.size(), element_bytes(*what.compression),
                              payload_room(*what.compression, what.data.size()));
      if (facts::identity<C> && !what.phantom()) {
        sum.data = reinterpret_cast<std::byte*>(what.data.data());
      }
      return sum;
    }
    /// Not a coroutine, which would write its arguments into a frame only to read them back at
    /// once.
    template <class C>
    task add_up_all(typename World::endpoint self, const launch<C>& what) const {
      return collective_.all_reduce(self, sum_of(what));
    }

    template <class C>
    requires facts::in_rounds<C> task add_up(typename World::endpoint self, const launch<C>& what)
    const {
      auto& queue = self.queue();
      for (int round = 0; round < facts::rounds<C>; ++round) {
        const std::size_t bytes = what.compression->wire_bytes(*what.worker.tensor, round);
        const auto sum = reduction_of(what, bytes / sizeof(float), sizeof(float),
                                      room_for_rounds(*what.compression, *what.worker.tensor));
        what.encode_round(queue, round, sum.all());
        co_await collective_.all_reduce(self, sum);
        if (round + 1 < facts::rounds<C>) {
          what.between(queue, round, sum.all());
        } else {
          what.decode(queue, sum.all(), world_->workers());
        }
      }
    }

    /// Returns the reduction of a payload at the beginning of the workspace. The collective's
    /// scratch begins `room` bytes after that.
    template <class C>
    auto reduction_of(const launch<C>& what, std::size_t elements, std::size_t element_bytes,
                      std::size_t room) const {
      reduction<payload_fold<C>> sum{nullptr, elements, element_bytes, {what.compression}};
      if constexpr (facts::has_routes<Collective>) {
        sum.route = routes_[what.number];
      }
      if (!what.phantom()) {
        sum.data = what.workspace.data();
        sum.scratch = what.workspace.subspan(room);
      }
      return sum;
    }

    /// Chooses the route of every chunk once. Turns are counted from the model's first bucket to
    /// its last, for each range of sizes by itself.
    [[gnu::cold]] void find_routes() {
      const plan& made = world_->planned();
      routes_.resize(made.chunks.size());
      std::vector<std::size_t> turns(1);
      for (std::size_t group = made.buckets.size(); group-- > 0;) {
        const bucket& whole = made.buckets[group];
        for (std::uint32_t i = 0; i < whole.chunks; ++i) {
          const chunk& piece = made.chunks[whole.first_chunk + i];
          std::size_t range = 0;
          if constexpr (requires { collective_.range_of(piece.elements); }) {
            range = collective_.range_of(piece.elements);
            turns.resize(std::max(turns.size(), range + 1));
          }
          const std::size_t begin = piece.first_element - whole.first_element;
          routes_[whole.first_chunk + i] = collective_.route_of(
              {world_->tensor_of(piece).name, i, begin, begin + piece.elements, turns[range]++});
        }
      }
    }

    template <class C>
    std::size_t workspace_of(const C& compression, std::size_t elements) const {
      return payload_room(compression, elements) +
             collective_.scratch_bytes(elements, element_bytes(compression), world_->size());
    }
    template <class C>
    std::size_t workspace_of(const C& compression, const tensor_facts& tensor) const {
      const std::size_t room = room_for_rounds(compression, tensor);
      return room + collective_.scratch_bytes(room / sizeof(float), sizeof(float), world_->size());
    }
    template <class C>
    static std::size_t element_bytes(const C& compression) {
      return compression.wire_bytes(1);
    }
    template <class C>
    static std::size_t payload_room(const C& compression, std::size_t elements) {
      return facts::identity<C> ? 0 : round_up(compression.wire_bytes(elements), 64);
    }
    template <class C>
    static std::size_t room_for_rounds(const C& compression, const tensor_facts& tensor) {
      std::size_t longest = 0;
      for (int round = 0; round < facts::rounds<C>; ++round) {
        longest = std::max(longest, compression.wire_bytes(tensor, round));
      }
      return round_up(longest, 64);
    }

    World* world_;
    Collective collective_;
    std::vector<std::uint64_t> routes_{};  ///< of each chunk, where the collective has several
  };
};
static_assert(architecture_policy<all_reduce<>>);

}  // namespace tutti::architecture
