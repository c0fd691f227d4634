#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/base/bounds.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/options.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/units.hpp"
#include "tutti/kernels/adaptive_sum.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/collective.hpp"

namespace tutti::architecture {

/// Adasum: ranks combine their vectors adaptively instead of adding them. Tensor by tensor, two
/// ranks' vectors a and b become
///   (1 - <a,b> / 2|a|²) a + (1 - <a,b> / 2|b|²) b,
/// which is their sum where they are orthogonal, their mean where they are equal, and the other
/// vector where one is zero. Neighbouring ranks combine first, then neighbouring pairs, then groups
/// of four and so on. Each exchange halves the range of elements that a rank holds, and all ranks
/// that hold a part of the same two vectors add up their inner products, in double. The halves are
/// gathered on the way back.
///
/// With `carries::gradient` it combines gradients. With `carries::difference` each rank first takes
/// a step on its own gradient, with momenta of its own. The steps are then combined, and the result
/// is added to the parameters as they were before the step.
///
/// Wire: 2(p-1)/p of the bytes, in log2(p) exchanges there and as many back, and three doubles a
/// tensor in log2(p)(log2(p)+1)/2 more exchanges. If p is not a power of two, let c be the next
/// lower one: each rank r >= c first sends its vectors to rank r - c, which combines them with its
/// own, and receives the result at the end. Each such pair thus moves all bytes twice more.
/// Cost: half of the bytes as scratch, or all of them if p is not a power of two; for differences,
/// also a copy of the parameters.
/// After: Maleki et al., "Scaling distributed training with adaptive summation", MLSys 2021;
/// Horovod's Adasum, which requires a power of two of ranks.
template <tutti::carries Carried = tutti::carries::gradient>
requires(Carried != tutti::carries::parameters) struct adasum {
  using role = tutti::role::architecture;
  static constexpr bool adds_payloads = false;
  static constexpr bool completes_alone = false;
  static constexpr bool ignores_compression = true;
  static constexpr bool weighs_tensors = true;
  static constexpr tutti::carries carries = Carried;
  static constexpr bool updates_first = Carried == tutti::carries::difference;

  static constexpr double busiest_nic(double, double dense, placement who) {
    return bound::all_reduce(dense, who.hosts());
  }

  template <class World>
  class state {
    using endpoint = typename World::endpoint;
    using launch = typename World::launch;

   public:
    using conditional_verbs = state;

    state(World& world, const no_options&) : world_(&world) {
      if constexpr (updates_first) {
        start_ = world.allocate_parallel();
      }
    }

    std::size_t workspace_bytes(std::size_t elements) const {
      const int ranks = world_->size();
      const bool handed_down = ranks != lower_power_of_two(ranks);
      const std::size_t received = handed_down ? elements : elements - elements / 2;
      return ranks == 1 ? 0 : offset_of_received(elements) + sizeof(float) * received;
    }

    float average() const {
      return updates_first ? 1.0f : 1.0f / static_cast<float>(world_->accumulation());
    }

    void depart(std::size_t position, std::uint64_t step) requires updates_first {
      world_->update_alone(position, step);
    }
    void outgoing(const chunk& piece, std::span<float> buffer) requires updates_first {
      world_->read_parameters(piece, buffer);
      world_->subtract(buffer, start_of(piece));
    }
    void incoming(const chunk& piece, std::span<float> buffer) requires updates_first {
      const std::span<float> start = start_of(piece);
      world_->add(start, buffer);
      world_->write_parameters(piece, start);
    }
    void arrive(std::size_t, std::uint64_t) requires updates_first {}
    void resume(std::uint64_t) requires updates_first {
      for (const chunk& each : world_->planned().chunks) {
        world_->read_parameters(each, start_of(each));
      }
    }

    task exchange(endpoint self, const launch& what) {
      const int ranks = lower_power_of_two(self.size());
      const int rank = self.rank();
      const run all{0, what.data.size()};
      if (rank >= ranks) {
        co_await self.send(rank - ranks, bytes_of(what, all));
        co_await self.receive(rank - ranks, bytes_of(what, all));
        co_return;
      }
      if (rank + ranks < self.size()) {
        co_await self.receive(rank + ranks, received(what, all));
        multiply(self.queue(), what, all, kernels::operand::first);
        combine(self.queue(), what, all, kernels::operand::first);
      }
      for (int distance = 1; distance < ranks; distance *= 2) {
        co_await halve(self, what, distance);
      }
      const run mine = held(what, rank, ranks);
      what.scale(self.queue(), mine.begin, mine.size());
      for (int distance = ranks / 2; distance > 0; distance /= 2) {
        const int peer = rank ^ distance;
        co_await self.exchange(peer, bytes_of(what, held(what, rank, 2 * distance)), peer,
                               bytes_of(what, held(what, peer, 2 * distance)));
      }
      if (rank + ranks < self.size()) {
        co_await self.send(rank + ranks, bytes_of(what, all));
      }
    }

   private:
    /// A range of a launch's elements.
    struct run {
      std::size_t begin;
      std::size_t end;
      std::size_t size() const { return end - begin; }
    };

    static int lower_power_of_two(int ranks) {
      return static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)));
    }

    /// Returns the range that a rank holds of the combination of `ranks` neighbours. At each
    /// distance the rank keeps the upper half where its number has that bit, else the lower half.
    static run held(const launch& what, int rank, int ranks) {
      run mine{0, what.data.size()};
      for (int distance = 1; distance < ranks; distance *= 2) {
        const std::size_t middle = mine.begin + mine.size() / 2;
        ((rank & distance) != 0 ? mine.begin : mine.end) = middle;
      }
      return mine;
    }

    /// Combines the results of two groups of `distance` neighbours. This rank and the one
    /// `distance` away hold the same range of the two results; each keeps half of that range.
    task halve(endpoint self, const launch& what, int distance) const {
      const int rank = self.rank();
      const int peer = rank ^ distance;
      const auto place =
          (rank & distance) == 0 ? kernels::operand::first : kernels::operand::second;
      const run mine = held(what, rank, 2 * distance);
      co_await self.exchange(peer, bytes_of(what, held(what, peer, 2 * distance)), peer,
                             received(what, mine));
      multiply(self.queue(), what, mine, place);
      for (int between = 1; between <= distance; between *= 2) {
        const auto theirs = products(what, 1);
        co_await self.exchange(rank ^ between, products(what, 0), rank ^ between, theirs);
        add_products(self.queue(), what);
      }
      combine(self.queue(), what, mine, place);
    }

    // ---- the workspace: this rank's inner products, the peer's, and the peer's vectors

    std::size_t most_tensors(std::size_t elements) const {
      return std::min(elements, world_->planned().backward.size());
    }
    std::size_t offset_of_received(std::size_t elements) const {
      return round_up(2 * sizeof(kernels::inner_products) * most_tensors(elements), 64);
    }
    std::span<std::byte> received(const launch& what, run some) const {
      return what.room(offset_of_received(what.data.size()), sizeof(float) * some.size());
    }
    std::span<std::byte> products(const launch& what, std::size_t whose) const {
      std::size_t tensors = 0;
      for_each_tensor(what, [&tensors](run) { ++tensors; });
      const std::size_t bytes = sizeof(kernels::inner_products) * tensors;
      return what.room(whose * bytes, bytes);
    }
    static std::span<std::byte> bytes_of(const launch& what, run some) {
      const std::size_t bytes = sizeof(float) * some.size();
      return what.phantom() ? std::span<std::byte>(static_cast<std::byte*>(nullptr), bytes)
                            : std::as_writable_bytes(what.data.subspan(some.begin, some.size()));
    }

    // ---- arithmetic, tensor by tensor

    /// Computes, tensor by tensor, the inner products of this rank's elements and those received,
    /// within the range `some`.
    template <class Queue>
    void multiply(Queue& queue, const launch& what, run some, kernels::operand place) const {
      charge(queue, 2 * sizeof(float) * some.size());
      for_each_part(what, some,
                    [&](std::span<float> mine, std::span<const float> theirs,
                        kernels::inner_products* result) {
                      if (place == kernels::operand::first) {
                        kernels::multiply(queue, mine, theirs, result);
                      } else {
                        kernels::multiply(queue, theirs, mine, result);
                      }
                    });
    }
    template <class Queue>
    void combine(Queue& queue, const launch& what, run some, kernels::operand place) const {
      charge(queue, 3 * sizeof(float) * some.size());
      for_each_part(what, some,
                    [&](std::span<float> mine, std::span<const float> theirs,
                        const kernels::inner_products* known) {
                      kernels::add_adaptively(queue, mine, theirs, known, place);
                    });
    }
    template <class Queue>
    void add_products(Queue& queue, const launch& what) const {
      if (!what.phantom()) {
        kernels::add_products(queue, items_of<kernels::inner_products>(products(what, 0)),
                              items_of<const kernels::inner_products>(products(what, 1)));
      }
    }

    /// Calls `visit(mine, theirs, products)` for each tensor of the launch, with those of its
    /// elements that lie in the range `some`, which may be none.
    template <class Visit>
    void for_each_part(const launch& what, run some, Visit visit) const {
      if (what.phantom()) {
        return;
      }
      auto* known = items_of<kernels::inner_products>(products(what, 0)).data();
      const auto theirs = items_of<const float>(received(what, some));
      for_each_tensor(what, [&](run tensor) {
        const std::size_t begin = std::clamp(tensor.begin, some.begin, some.end);
        const std::size_t count = std::clamp(tensor.end, some.begin, some.end) - begin;
        visit(what.data.subspan(begin, count), theirs.subspan(begin - some.begin, count), known++);
      });
    }

    /// Calls `visit(run)` for each tensor of the launch that has elements, in their order.
    template <class Visit>
    void for_each_tensor(const launch& what, Visit visit) const {
      const plan& made = world_->planned();
      std::size_t place = 0;
      const auto tensors_of = [&](std::uint32_t number) {
        const chunk& piece = made.chunks[number];
        for (const std::size_t position : made.tensors_of(piece)) {
          const std::size_t begin = made.first_element[position] - piece.first_element;
          const std::size_t elements = made.backward[position].elements;
          if (elements != 0) {
            visit(run{place + begin, place + begin + elements});
          }
        }
        place += piece.elements;
      };
      if (what.chunks.empty()) {
        tensors_of(what.number);
      }
      for (const std::uint32_t each : what.chunks) {
        tensors_of(each);
      }
    }

    template <class T>
    static std::span<T> items_of(std::span<std::byte> bytes) {
      return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
    }

    std::span<float> start_of(const chunk& piece) {
      return world_->part_of(span_of(start_), piece);
    }

    World* world_;
    typename World::template memory<float> start_{};  ///< parameters before this step
  };
};
static_assert(architecture_policy<adasum<>> && architecture_policy<adasum<carries::difference>>);

}  // namespace tutti::architecture
