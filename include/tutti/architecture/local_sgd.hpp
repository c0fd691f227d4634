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

/// Every rank applies its own gradients, and after each `period` steps all models become their
/// mean. Momenta stay each rank's own. Wire: the collective's, of the parameters, in one step of
/// `period`; nothing in the others. Cost: a buffer as large as the model; the replicas drift apart
/// between means. After: Stich, "Local SGD converges fast and communicates little", ICLR 2019; Lin
/// et al., 2020.
template <collective_policy Collective = collective::ring>
struct local_sgd : all_reduce<Collective> {
  static constexpr bool stale = true;
  static constexpr tutti::carries carries = tutti::carries::parameters;
  static constexpr bool updates_first = true;

  struct options {
    int period{4};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("period", self.period, "steps from one mean of the models to the next");
    }
  };

  static constexpr double busiest_nic(const options& set, double payload, double dense,
                                      placement who) {
    return all_reduce<Collective>::busiest_nic(payload, dense, who) / set.period;
  }

  template <class World>
  class state : public all_reduce<Collective>::template state<World> {
   public:
    /// Throws usage_error if the period is not at least 1.
    state(World& world, const options& set)
        : all_reduce<Collective>::template state<World>(world, {}),
          world_(&world),
          period_(static_cast<std::uint64_t>(set.period)) {
      if (set.period < 1) {
        throw usage_error("architecture::local_sgd: the period must be at least 1 step. Fix: 4.");
      }
    }

    bool sends(std::uint64_t step) const { return (step + 1) % period_ == 0; }
    float average() const { return 1.0f / static_cast<float>(world_->workers()); }
    void depart(std::size_t position, std::uint64_t step) { world_->update_alone(position, step); }
    void outgoing(const chunk& piece, std::span<float> buffer) {
      world_->read_parameters(piece, buffer);
    }
    void incoming(const chunk& piece, std::span<float> buffer) {
      world_->write_parameters(piece, buffer);
    }
    void arrive(std::size_t, std::uint64_t) {}

   private:
    World* world_;
    std::uint64_t period_;
  };
};
static_assert(architecture_policy<local_sgd<>>);

}  // namespace tutti::architecture
