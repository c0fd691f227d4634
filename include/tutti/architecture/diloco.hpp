#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tutti/architecture/all_reduce.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::architecture {

/// Throws usage_error unless the outer rate is above 0 and the outer momentum is from 0 to below 1.
/// With a compressor that sends momenta the outer momentum must be 0, or it would be a momentum of
/// momenta.
template <class Compression>
[[gnu::cold]] void expect_outer_steps(std::string_view whose, double rate, double momentum) {
  if (!(rate > 0)) {
    throw usage_error(sentence({whose, ": the outer rate must be above 0. Fix: 0.7"}));
  }
  if (!(momentum >= 0 && momentum < 1)) {
    throw usage_error(
        sentence({whose, ": the outer momentum must be from 0 to below 1. Fix: 0.9"}));
  }
  if (facts::keeps_momentum<Compression> && momentum != 0) {
    throw usage_error(
        sentence({whose,
                  ": this compressor sends each rank's momentum, and outer steps would make a "
                  "second momentum of it. Fix: set the outer momentum to 0"}));
  }
}

/// Every rank applies its own gradients with the engine's optimizer (the inner one), whose state
/// each rank keeps to itself. After every `period` steps all ranks take one outer step together, by
/// SGD with Nesterov's momentum. With s the parameters after the last outer step, the same on every
/// rank, and x a rank's model:
///   d = mean over the ranks of s - x
///   v = momentum * v + d
///   s = s - rate * (d + momentum * v)
///   x = s, on every rank.
/// With rate 1 and no momentum this is the mean of the models, as in local SGD.
/// Wire: as the collective, for the payload of d, in one step of every `period`; nothing in the
/// others.
/// Cost: a buffer and two memories (s and v) as large as the model. A checkpoint holds both
/// memories.
/// After: Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models",
/// 2023.
template <collective_policy Collective = collective::ring>
struct diloco : all_reduce<Collective> {
  static constexpr bool stale = true;
  static constexpr tutti::carries carries = tutti::carries::difference;
  static constexpr bool updates_first = true;

  struct options {
    int period{500};
    double rate{0.7};
    double momentum{0.9};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("period", self.period, "inner steps from one outer step to the next");
      visit("rate", self.rate, "learning rate of the outer steps");
      visit("momentum", self.momentum, "Nesterov momentum of the outer steps");
    }
  };

  /// Returns 0, because most steps send nothing.
  static constexpr double busiest_nic(double, double, placement) { return 0; }

  template <class World>
  class state : public all_reduce<Collective>::template state<World> {
   public:
    /// Throws usage_error if the period is not at least 1, or if expect_outer_steps refuses the
    /// outer rate or momentum.
    state(World& world, const options& set)
        : all_reduce<Collective>::template state<World>(world, {}),
          world_(&world),
          set_(set),
          start_(world.allocate_parallel()),
          velocity_(world.allocate_parallel()) {
      if (set.period < 1) {
        throw usage_error("architecture::diloco: the period must be at least 1 step. Fix: 500");
      }
      expect_outer_steps<typename World::compression>("architecture::diloco", set.rate,
                                                      set.momentum);
    }

    bool sends(std::uint64_t step) const {
      return (step + 1) % static_cast<std::uint64_t>(set_.period) == 0;
    }
    float average() const { return 1.0f / static_cast<float>(world_->workers()); }
    void depart(std::size_t position, std::uint64_t step) { world_->update_alone(position, step); }

    void outgoing(const chunk& piece, std::span<float> buffer) {
      world_->read_parameters(piece, buffer);
      world_->blend(buffer, world_->part_of(span_of(start_), piece), -1.0f, 1.0f);
    }
    void incoming(const chunk& piece, std::span<float> mean) {
      const auto rate = static_cast<float>(set_.rate);
      const auto momentum = static_cast<float>(set_.momentum);
      const std::span<float> start = world_->part_of(span_of(start_), piece);
      const std::span<float> velocity = world_->part_of(span_of(velocity_), piece);
      world_->blend(velocity, mean, momentum, 1.0f);
      world_->blend(mean, velocity, 1.0f, momentum);
      world_->blend(start, mean, 1.0f, -rate);
      world_->write_parameters(piece, start);
    }
    void arrive(std::size_t, std::uint64_t) {}

    void resume(std::uint64_t) {
      for (const chunk& each : world_->planned().chunks) {
        world_->read_parameters(each, world_->part_of(span_of(start_), each));
      }
    }
    std::vector<std::span<float>> memories() { return {span_of(start_), span_of(velocity_)}; }

   private:
    World* world_;
    options set_;
    typename World::template memory<float> start_;     ///< s: parameters after the last outer step
    typename World::template memory<float> velocity_;  ///< v: the outer momentum
  };
};
static_assert(architecture_policy<diloco<>>);

}  // namespace tutti::architecture
