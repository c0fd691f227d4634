#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/architecture/all_reduce.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/role/architecture.hpp"

namespace tutti::architecture {

/// Every rank keeps a model x of its own. In each step it draws its model towards the mean of all
/// models, and then applies its own gradient:
///   x = (1 - alpha) * x + alpha * mean(x), then the optimizer on the rank's gradient.
/// With alpha 0 every rank trains by itself; with 1 all ranks step from the same mean. Without an
/// optimizer of the engine's, one of the user's may follow `wait`.
/// Wire: as the collective, for the parameters.
/// Cost: a buffer as large as the model.
/// After: Zhang, Choromanska and LeCun, "Deep learning with elastic averaging SGD", NIPS 2015;
/// KungFu's SynchronousAveraging, Mai et al., OSDI 2020.
template <collective_policy Collective = collective::ring>
struct model_averaging : all_reduce<Collective> {
  static constexpr bool stale = true;
  static constexpr tutti::carries carries = tutti::carries::parameters;
  static constexpr bool mixes_late = true;

  struct options {
    double alpha{0.1};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("alpha", self.alpha,
            "how far a model moves towards the mean of all models in a step, 0 to 1");
    }
  };

  template <class World>
  class state : public all_reduce<Collective>::template state<World> {
   public:
    /// Throws usage_error unless 0 <= alpha <= 1.
    state(World& world, const options& set)
        : all_reduce<Collective>::template state<World>(world, {}),
          world_(&world),
          alpha_(static_cast<float>(set.alpha)) {
      if (!(set.alpha >= 0 && set.alpha <= 1)) {
        throw usage_error("architecture::model_averaging: alpha must be from 0 to 1. Fix: 0.1");
      }
    }

    float average() const { return 1.0f / static_cast<float>(world_->workers()); }
    void outgoing(const chunk& piece, std::span<float> buffer) {
      world_->read_parameters(piece, buffer);
    }
    void incoming(const chunk& piece, std::span<float> buffer) {
      world_->mix_parameters(piece, buffer, alpha_);
    }
    void arrive(std::size_t position, std::uint64_t step) { world_->update_alone(position, step); }

   private:
    World* world_;
    float alpha_;
  };
};
static_assert(architecture_policy<model_averaging<>>);

}  // namespace tutti::architecture
