#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "tutti/architecture/all_reduce.hpp"
#include "tutti/architecture/mean.hpp"
#include "tutti/architecture/optimizer_shares.hpp"
#include "tutti/base/bounds.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/options.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/units.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/collective.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::architecture {

/// What happens to a gradient's memory once its sum has reached its owners.
enum class gradients {
  kept,        ///< it stays where the model has it
  given_back,  ///< the engine has lent it, and lends it again to other gradients
};

/// The options of `sharded` with gradients::given_back, which include the collective's.
template <class Own>
struct lending_options {
  Own collective{};
  std::size_t lent_bytes{};

  template <class Self, class Visitor>
  static void describe(Self& self, Visitor&& visit) {
    Own::describe(self.collective, visit);
    visit("lent_bytes", self.lent_bytes,
          "bytes of gradients that are lent at once, at least one bucket's; writing more waits; 0: "
          "no limit");
  }
};

/// Every rank computes with all parameters x, but keeps the optimizer's state s of its share of
/// them only. Each of p ranks owns one contiguous run of every chunk (`chunk::part`), and in all
/// ceil(n / p) or floor(n / p) elements of a model of n, however it is cut. In every step
///   g[owned] = mean over q of rank q's gradient[owned]   reduce-scatter of payloads
///   x[owned], s[owned] = optimizer(x, s, g)[owned]       on the owner, between the halves
///   x[elsewhere] = its owner's                           all-gather of floats, in x
/// Under a schedule that splits exchanges, each update follows its reduce-scatter, and parameters
/// are gathered when the schedule says.
///
/// With `gradients::given_back`, a model that has no memory for its gradients writes each one where
/// `engine::gradient(id)` says. A bucket's memory is lent to another bucket as soon as the
/// reduce-scatters and updates of its chunks are over. So a rank holds only the buckets that are
/// being written or on their way, and nothing of a reduced gradient, for the mean of its share is
/// used up at once. Memory is held longer in two cases: until the parameters are gathered, where a
/// bucket's parameters are not neighbours in memory (in an arena they are); and from the first pass
/// on, where passes accumulate. A model with gradient memory of its own keeps it, and `report`
/// says so. `lent_bytes` bounds what is held, where all ranks write buckets in one order: a rank
/// that is ahead then waits for the others. Values are those of `gradients::kept`, bit for bit.
///
/// Wire: (p-1)/p of the payload and (p-1)/p of the parameters from every rank: without compression
/// as many bytes as an all-reduce.
/// Cost: optimizer state of at most ceil(n / p) elements on a rank, whose bytes `report` prints,
/// and an update of as many; `replan` takes state of n elements on every rank for a moment.
/// Errors: an engine refuses a checkpoint that was saved by one which cuts the model otherwise.
/// After: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
/// Models", SC 2020, of which this is the partition of optimizer states and, with
/// `gradients::given_back`, of gradients.
template <splitting_collective Collective = collective::ring, gradients Gradients = gradients::kept,
          mean Mean = mean::after>
struct sharded {
  using role = tutti::role::architecture;
  using collective = Collective;
  using options =
      std::conditional_t<Gradients == gradients::given_back,
                         lending_options<options_of<Collective>>, options_of<Collective>>;
  static constexpr bool adds_payloads = true;
  static constexpr bool completes_alone = false;
  static constexpr bool ordered_start = Collective::ordered_start;
  static constexpr bool owns_parameters = true;
  static constexpr bool owns_parts = true;
  static constexpr bool has_halves = true;
  static constexpr bool divides_first = Mean == mean::before;
  static constexpr bool gives_gradients_back = Gradients == gradients::given_back;

  static constexpr double busiest_nic(double payload, double dense, placement who) {
    return bound::all_reduce((payload + dense) / 2, who.hosts());
  }
  static constexpr exchange_cost alone(placement who) requires requires { Collective::alone(1); }
  { return Collective::alone(who.workers); }

  template <class World>
  class state {
    using launch = typename World::launch;
    using compression = typename World::compression;
    static constexpr bool encoded = !facts::identity<compression>;

   public:
    state(World& world, const options& set)
        : world_(&world),
          collective_(make_policy<Collective>(of_collective(set))),
          shares_(world) {}

    std::size_t workspace_bytes(std::size_t elements) const {
      return payload_room(elements) +
             collective_.scratch_bytes(elements, std::max(element_bytes(), sizeof(float)),
                                       world_->size());
    }

    float average() const { return average_of_gradients<Mean>(*world_); }

    task exchange(typename World::endpoint self, const launch& what) {
      if (divides_first) {
        what.scale(self.queue(), 0, what.data.size());
      }
      const auto gradients = encoded ? payloads_of(what) : floats_of(what);
      if (encoded) {
        what.encode(self.queue(), 0, what.data.size(), gradients.all());
      }
      co_await collective_.reduce_scatter(self, gradients);
      update(self, what, gradients.part(at(self.size()), at(self.rank())));
      const chunk& piece = world_->planned().chunks[what.number];
      const std::span<float> in_place = world_->parameters(piece);
      if (in_place.empty()) {
        const chunk mine = shares_.share_of(piece);
        world_->read_parameters(mine, part_of(what, mine));
      } else {
        world_->give_back(piece);
      }
      if constexpr (World::splits_phases) {
        co_await what.between_halves();
      }
      auto parameters = floats_of(what);
      if (!in_place.empty()) {
        parameters.data = reinterpret_cast<std::byte*>(in_place.data());
      }
      co_await collective_.all_gather(self, parameters);
      if (in_place.empty()) {
        world_->write_parameters(piece, what.data);
        world_->give_back(piece);
      }
    }

    void arrive(std::size_t, std::uint64_t) {}  // the exchange has updated the parameters

    std::vector<std::span<float>> memories() { return shares_.memories(); }
    std::size_t optimizer_floats() const { return shares_.floats(); }

   private:
    /// Updates this rank's share of a chunk's parameters, from its share of the sum.
    void update(typename World::endpoint self, const launch& what, std::span<std::byte> payload) {
      auto& queue = self.queue();
      const chunk& piece = world_->planned().chunks[what.number];
      const chunk mine = shares_.share_of(piece);
      const std::size_t begin = mine.first_element - piece.first_element;
      if (encoded) {
        what.decode(queue, payload, begin, mine.elements);
      }
      if (!divides_first) {
        what.scale(queue, begin, mine.elements);
      }
      shares_.update(what.number, what.step, part_of(what, mine));
    }
    /// Returns where a launch's data holds a part of its chunk.
    std::span<float> part_of(const launch& what, const chunk& part) const {
      const std::size_t begin =
          part.first_element - world_->planned().chunks[what.number].first_element;
      return what.phantom() ? what.data : what.data.subspan(begin, part.elements);
    }

    static const options_of<Collective>& of_collective(const options& set) {
      if constexpr (Gradients == gradients::given_back) {
        return set.collective;
      } else {
        return set;
      }
    }

    reduction<payload_fold<compression>> floats_of(const launch& what) const {
      auto whole = scratch_of(what, sizeof(float));
      whole.data = reinterpret_cast<std::byte*>(what.data.data());
      return whole;
    }
    reduction<payload_fold<compression>> payloads_of(const launch& what) const {
      auto whole = scratch_of(what, element_bytes());
      whole.data = what.phantom() ? nullptr : what.workspace.data();
      return whole;
    }
    reduction<payload_fold<compression>> scratch_of(const launch& what, std::size_t bytes) const {
      reduction<payload_fold<compression>> of{nullptr, what.data.size(), bytes, {what.compression}};
      of.first_element = world_->planned().chunks[what.number].first_element;
      if (!what.phantom()) {
        of.scratch = what.workspace.subspan(payload_room(what.data.size()));
      }
      return of;
    }
    std::size_t element_bytes() const { return world_->compressor().wire_bytes(1); }
    std::size_t payload_room(std::size_t elements) const {
      return encoded ? round_up(world_->compressor().wire_bytes(elements), 64) : 0;
    }

    World* world_;
    Collective collective_;
    optimizer_shares<World> shares_;
  };
};
static_assert(architecture_policy<sharded<>>);

}  // namespace tutti::architecture
