#pragma once

#include <cstddef>
#include <cstdint>

#include "tutti/base/task.hpp"
#include "tutti/role/architecture.hpp"

namespace tutti::architecture {

/// Every rank trains by itself on its own data. No strategy that communicates can be faster, so
/// this is a bound to compare others with.
/// Wire: nothing.
/// Cost: nothing; the replicas drift apart.
/// After: tf_cnn_benchmarks' `independent`.
struct independent {
  using role = tutti::role::architecture;
  static constexpr bool adds_payloads = false;
  static constexpr bool completes_alone = true;

  static constexpr double busiest_nic(double, double, placement) { return 0; }
  static constexpr exchange_cost alone(placement) { return {}; }

  template <class World>
  class state {
   public:
    state(World& world, const no_options&) : world_(&world) {}

    bool sends(std::uint64_t) const { return false; }
    void arrive(std::size_t position, std::uint64_t step) { world_->update_alone(position, step); }

    std::size_t workspace_bytes(std::size_t) const { return 0; }
    task exchange(typename World::endpoint, const typename World::launch&) { co_return; }

   private:
    World* world_;
  };
};
static_assert(architecture_policy<independent>);

}  // namespace tutti::architecture
