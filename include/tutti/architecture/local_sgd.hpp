#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tutti/architecture/all_reduce.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/task.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/role/architecture.hpp"

namespace tutti::architecture {

/// How the period grows in the warm-up.
enum class growth {
  constant,  ///< it is 1 step throughout
  doubling,  ///< it is 1, 2, 4, ... up to `period`, each for equally many steps
};
constexpr std::array<std::string_view, 2> names(growth) { return {"constant", "doubling"}; }

/// What happens to the optimizer's momenta when models are averaged.
enum class momenta {
  kept,      ///< each rank keeps its own
  averaged,  ///< they are averaged, too
};
constexpr std::array<std::string_view, 2> names(momenta) { return {"kept", "averaged"}; }

/// Every rank applies its own gradients, and from time to time all models are replaced by their
/// mean. That happens after each step t for which t + 1 is a multiple of H(t), which is `period`,
/// or less in the first `warm_up` steps, as `growth` says. With constant growth this is post-local
/// SGD: synchronous in the warm-up, and local afterwards.
/// Wire: as the collective, for the parameters, in one step of every H; nothing in the others.
/// Where momenta are averaged, as much again for each of them.
/// Cost: a buffer as large as the model; the replicas drift apart between means.
/// After: Stich, "Local SGD converges fast and communicates little", ICLR 2019; Lin et al., "Don't
/// use large mini-batches, use local SGD", ICLR 2020, for the warm-up; Yu, Jin and Yang, "On the
/// linear speedup analysis of communication efficient momentum SGD", ICML 2019, for the momenta.
template <collective_policy Collective = collective::ring>
struct local_sgd : all_reduce<Collective> {
  static constexpr bool stale = true;
  static constexpr tutti::carries carries = tutti::carries::parameters;
  static constexpr bool updates_first = true;

  struct options {
    int period{4};
    std::uint64_t warm_up{};
    architecture::growth growth{architecture::growth::constant};
    architecture::momenta momenta{architecture::momenta::kept};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("period", self.period, "steps from one averaging of the models to the next");
      visit("warm_up", self.warm_up, "steps at the start that have shorter periods");
      visit("growth", self.growth, "length of those periods: constant: 1; doubling: 1, 2, 4, ...");
      visit("momenta", self.momenta, "kept by each rank, or averaged with the models");
    }

    std::uint64_t period_at(std::uint64_t step) const {
      const auto last = static_cast<std::uint64_t>(period);
      if (step >= warm_up) {
        return last;
      }
      const auto lengths = static_cast<std::uint64_t>(std::bit_width(last));
      return growth == growth::constant ? 1 : std::uint64_t{1} << (step * lengths / warm_up);
    }
  };

  static constexpr double busiest_nic(const options& set, double payload, double dense,
                                      placement who) {
    return all_reduce<Collective>::busiest_nic(payload, dense, who) / set.period;
  }

  template <class World>
  class state : public all_reduce<Collective>::template state<World> {
    using base = typename all_reduce<Collective>::template state<World>;
    using launch = typename World::launch;

   public:
    /// Throws usage_error if the period is not at least 1, or if momenta are averaged under a
    /// schedule that splits exchanges: there an exchange ends with the models' second half.
    state(World& world, const options& set) : base(world, {}), world_(&world), set_(set) {
      if (set.period < 1) {
        throw usage_error("architecture::local_sgd: the period must be at least 1 step. Fix: 4");
      }
      if (World::splits_phases && set.momenta == momenta::averaged) {
        throw usage_error(
            "architecture::local_sgd: averaged momenta are sent after the models, but this "
            "schedule ends an exchange with the models' second half. Fix: set momenta = kept, or "
            "use schedule::as_ready");
      }
    }

    bool sends(std::uint64_t step) const { return (step + 1) % set_.period_at(step) == 0; }
    float average() const { return 1.0f / static_cast<float>(world_->workers()); }
    void depart(std::size_t position, std::uint64_t step) { world_->update_alone(position, step); }
    void outgoing(const chunk& piece, std::span<float> buffer) {
      world_->read_parameters(piece, buffer);
    }
    task exchange(typename World::endpoint self, const launch& what) {
      return set_.momenta == momenta::kept ? base::exchange(self, what)
                                           : average_momenta_too(self, what);
    }
    void incoming(const chunk& piece, std::span<float> buffer) {
      world_->write_parameters(piece, buffer);
    }
    void arrive(std::size_t, std::uint64_t) {}

   private:
    task average_momenta_too(typename World::endpoint self, const launch& what) {
      co_await base::exchange(self, what);
      const std::span<const std::uint32_t> alone(&what.number, 1);
      for (const std::uint32_t number : what.chunks.empty() ? alone : what.chunks) {
        for (std::size_t row = 0; row < world_->momenta_per_element(); ++row) {
          launch beside = what;
          beside.data = world_->momenta_of(world_->planned().chunks[number], row);
          co_await base::exchange(self, beside);
        }
      }
    }

    World* world_;
    options set_;
  };
};
static_assert(architecture_policy<local_sgd<>>);

}  // namespace tutti::architecture
