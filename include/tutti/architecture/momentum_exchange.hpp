#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "tutti/architecture/dense.hpp"
#include "tutti/architecture/departures.hpp"
#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/task.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/role/architecture.hpp"

namespace tutti::architecture {

/// Averages gradients, as floats, while the optimizer warms up. From a step on that the optimizer
/// names, it averages momenta instead, compressed on the way to their owners and on the way back,
/// as reduce_scatter_all_gather does; every rank goes on with the mean momentum. The optimizer must
/// be one that supports this (one_bit_adam).
/// Wire: 2(p-1)/p of the floats from every rank while it warms up, then 2(p-1)/p of the payload.
/// Cost: a buffer as large as the model, for means of gradients; momenta travel in the optimizer's
/// memory.
/// After: Tang et al., "1-bit Adam", ICML 2021.
struct momentum_exchange : reduce_scatter_all_gather {
  static constexpr bool turns_on_steps = true;
  static constexpr bool exchanges_momenta = true;

  template <class World>
  class state : public reduce_scatter_all_gather::state<World> {
    using base = reduce_scatter_all_gather::state<World>;
    using launch = typename World::launch;

   public:
    state(World& world, const no_options& none)
        : base(world, none), world_(&world), departed_(world.planned()) {}

    std::size_t workspace_bytes(std::size_t elements) const {
      return std::max(base::workspace_bytes(elements),
                      mean_of_floats::workspace_bytes(elements, world_->size()));
    }

    /// Returns 1 / workers. Gradients have been divided by the number of passes before, when they
    /// were read and before a momentum took them in.
    float average() const { return 1.0f / static_cast<float>(world_->workers()); }
    void depart(std::size_t position, std::uint64_t step) { departed_.note(position, step); }

    void outgoing(const chunk& piece, std::span<float> buffer) {
      if (world_->phantom()) {
        return;
      }
      chunk_context where;
      where.step = departed_.step_of(piece);
      if (!world_->values().exchanges_momenta(where.step)) {
        read_means_of_passes(piece, buffer);
        return;
      }
      where.memory = world_->momenta().data() + piece.first_element;
      where.stride = world_->momenta().size() / world_->momenta_per_element();
      where.first_element = piece.first_element;
      const auto take_in = [&](std::span<const float> gradient, std::size_t in_chunk) {
        world_->values().outgoing(world_->queue(), gradient, where.from(in_chunk));
      };
      if (world_->accumulation() == 1) {
        world_->for_each_gradient(piece, buffer, take_in);
      } else {
        read_means_of_passes(piece, buffer);
        take_in(buffer, 0);
      }
    }

    task exchange(typename World::endpoint self, const launch& what) {
      return world_->values().exchanges_momenta(what.step) ? base::exchange(self, what)
                                                           : mean_of_floats::exchange(self, what);
    }

    void arrive(std::size_t position, std::uint64_t step) {
      if (world_->values().exchanges_momenta(step)) {
        world_->update_by_momentum(position, step);
      } else {
        world_->update_by_launches(position, step);
      }
    }

   private:
    void read_means_of_passes(const chunk& piece, std::span<float> buffer) const {
      world_->read_gradients(piece, buffer);
      if (world_->accumulation() != 1) {
        kernels::scale(world_->queue(), buffer, 1.0f / static_cast<float>(world_->accumulation()));
      }
    }

    World* world_;
    departures departed_;
  };
};
static_assert(architecture_policy<momentum_exchange>);

}  // namespace tutti::architecture
