#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tutti/architecture/all_reduce.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/role/architecture.hpp"

namespace tutti::architecture {

/// Every rank keeps a model x_i of its own, and an elastic force draws the models and a centre c
/// towards each other. In each step t that is a multiple of `period`, with a = force / p on p
/// ranks,
///   x_i = x_i - a (x_i - c)
///   c   = c + a * sum over i of (x_i - c) = (1 - force) c + force * mean(x),
/// both with the old values on the right. Then, as in any other step, the optimizer runs on rank
/// i's gradient, which was computed before. Every rank keeps the same centre c. Without an
/// optimizer of the engine's, one of the user's may follow `wait`.
/// Wire: as the collective, for the parameters, in one step of every `period`; nothing in the
/// others.
/// Cost: a buffer and a memory (the centre) as large as the model. A checkpoint holds the centre.
/// After: Zhang, Choromanska and LeCun, "Deep learning with elastic averaging SGD", NIPS 2015, its
/// synchronous form; `force` is its beta.
template <collective_policy Collective = collective::ring>
struct elastic_averaging : all_reduce<Collective> {
  static constexpr bool stale = true;
  static constexpr tutti::carries carries = tutti::carries::parameters;

  struct options {
    double force{0.9};
    int period{1};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("force", self.force, "how far the centre moves towards the mean of all models, 0 to 1");
      visit("period", self.period, "steps from one exchange to the next");
    }
  };

  static constexpr double busiest_nic(const options& set, double payload, double dense,
                                      placement who) {
    return all_reduce<Collective>::busiest_nic(payload, dense, who) / set.period;
  }

  template <class World>
  class state : public all_reduce<Collective>::template state<World> {
   public:
    /// Throws usage_error unless 0 <= force <= 1 and the period is at least 1.
    state(World& world, const options& set)
        : all_reduce<Collective>::template state<World>(world, {}),
          world_(&world),
          set_(set),
          centre_(world.allocate_parallel()) {
      if (!(set.force >= 0 && set.force <= 1)) {
        throw usage_error(
            "architecture::elastic_averaging: the force must be from 0 to 1. Fix: "
            "0.9");
      }
      if (set.period < 1) {
        throw usage_error(
            "architecture::elastic_averaging: the period must be at least 1 step. "
            "Fix: 1");
      }
    }

    bool sends(std::uint64_t step) const {
      return step % static_cast<std::uint64_t>(set_.period) == 0;
    }
    float average() const { return 1.0f / static_cast<float>(world_->workers()); }
    void outgoing(const chunk& piece, std::span<float> buffer) {
      world_->read_parameters(piece, buffer);
    }
    void incoming(const chunk& piece, std::span<float> mean) {
      const std::span<float> centre = world_->part_of(span_of(centre_), piece);
      world_->mix_parameters(piece, centre, static_cast<float>(set_.force / world_->workers()));
      world_->blend(centre, mean, static_cast<float>(1 - set_.force),
                    static_cast<float>(set_.force));
    }
    void arrive(std::size_t position, std::uint64_t step) { world_->update_alone(position, step); }

    void resume(std::uint64_t) {
      for (const chunk& each : world_->planned().chunks) {
        world_->read_parameters(each, world_->part_of(span_of(centre_), each));
      }
    }
    std::vector<std::span<float>> memories() { return {span_of(centre_)}; }

   private:
    World* world_;
    options set_;
    typename World::template memory<float> centre_;
  };
};
static_assert(architecture_policy<elastic_averaging<>>);

}  // namespace tutti::architecture
