#pragma once

#include <cstddef>
#include <span>

#include "tutti/base/bounds.hpp"
#include "tutti/base/task.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/collective.hpp"

namespace tutti::architecture {

/// Replaces a launch's floats by their mean over the ranks, with a ring all-reduce that needs
/// `workspace_bytes` of the launch's workspace.
struct mean_of_floats {
  static std::size_t workspace_bytes(std::size_t elements, int ranks) {
    return collective::ring{}.scratch_bytes(elements, sizeof(float), ranks);
  }

  template <class Endpoint, class Launch>
  static task exchange(Endpoint self, const Launch& what) {
    reduction<addition> sum{nullptr, what.data.size(), sizeof(float), {}};
    if (!what.phantom()) {
      sum.data = reinterpret_cast<std::byte*>(what.data.data());
      sum.scratch = what.workspace;
    }
    co_await collective::ring{}.all_reduce(self, sum);
    what.scale(self.queue(), 0, what.data.size());
  }

 private:
  struct addition {
    static constexpr std::size_t unit = 64;
    template <class Queue>
    void operator()(Queue& queue, std::byte* into, const std::byte* from, std::size_t bytes) const {
      kernels::add(queue, std::span(reinterpret_cast<float*>(into), bytes / sizeof(float)),
                   std::span(reinterpret_cast<const float*>(from), bytes / sizeof(float)));
    }
  };
};

/// Gradients travel as floats, whatever the compressor. It is meant as the first architecture of a
/// switch_at whose second one compresses: `switch_at<dense, all_gather>` takes dense steps as a
/// warm-up for a compressor whose payloads do not add. What that compressor remembers begins with
/// the switch. Without a switch, it is all_reduce<> without compression.
/// Wire: as the ring.
/// Cost: as the ring.
/// After: Tang et al., "1-bit Adam", ICML 2021, whose first steps are dense.
struct dense {
  using role = tutti::role::architecture;
  static constexpr bool adds_payloads = false;
  static constexpr bool completes_alone = false;
  static constexpr bool ordered_start = collective::ring::ordered_start;
  static constexpr bool ignores_compression = true;

  static constexpr double busiest_nic(double, double floats, placement who) {
    return bound::all_reduce(floats, who.hosts());
  }

  template <class World>
  class state {
   public:
    state(World& world, const no_options&) : world_(&world) {}

    std::size_t workspace_bytes(std::size_t elements) const {
      return mean_of_floats::workspace_bytes(elements, world_->size());
    }
    task exchange(typename World::endpoint self, const typename World::launch& what) {
      return mean_of_floats::exchange(self, what);
    }

   private:
    World* world_;
  };
};
static_assert(architecture_policy<dense>);

}  // namespace tutti::architecture
