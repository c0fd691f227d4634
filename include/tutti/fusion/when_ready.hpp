#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/units.hpp"
#include "tutti/fusion/ready_times.hpp"
#include "tutti/role/fusion.hpp"

namespace tutti::fusion {

/// What became ready since the last tick of a clock travels together, up to a limit.
/// Plan: adjacent tensors that the profile expects between two ticks; the tensor that would pass
/// the limit begins the next group, and one above it travels alone.
/// Cost: one copy in and one copy out per byte that is fused; nobody waits longer than a cycle.
/// After: Sergeev and Del Balso, "Horovod", 2018: its cycle and threshold. Its ranks agree in each
/// cycle on what is ready; here the profile says it once, so they need not, and the groups of a
/// step that departs from the profile are those of one that does not. Nor does a small tensor
/// overtake one that no longer fits (look-ahead).
class when_ready {
 public:
  using role = tutti::role::fusion;

  struct options {
    std::size_t bytes{128_MiB};
    double cycle{1e-3};
    double seconds_per_element{5e-9};  // ResNet-50, batch 64, V100: 0.12 s for 25.6 million

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("bytes", self.bytes, "a group is not larger; 0: every tensor alone");
      visit("cycle", self.cycle, "seconds between two ticks; 0: every tensor alone");
      visit("seconds_per_element", self.seconds_per_element,
            "backward time for each element, if not measured");
    }
  };

  constexpr when_ready() = default;
  explicit constexpr when_ready(const options& values) : options_(values) {
    if (!(values.cycle >= 0)) {
      throw usage_error("fusion::when_ready: a cycle is not negative. Fix: seconds, as 0.001");
    }
  }

  std::vector<std::size_t> group_ends(std::span<const tensor_facts> backward,
                                      const profile& known) const {
    const std::vector<seconds> ready = ready_times(backward, known, options_.seconds_per_element);
    std::vector<std::size_t> ends;
    std::size_t held = 0;
    for (std::size_t i = 0; i < backward.size(); ++i) {
      const std::size_t bytes = backward[i].elements * sizeof(float);
      if (i != 0 && (options_.bytes == 0 || held + bytes > options_.bytes ||
                     !in_one_cycle(ready[i - 1], ready[i]))) {
        ends.push_back(i);
        held = 0;
      }
      held += bytes;
    }
    if (!backward.empty()) {
      ends.push_back(backward.size());
    }
    return ends;
  }

 private:
  /// At the tick that finds the one ready, so is the other. The first comes after a cycle.
  bool in_one_cycle(seconds one, seconds other) const {
    return options_.cycle > 0 && tick_after(one) == tick_after(other);
  }
  double tick_after(seconds ready) const {
    return std::max(1.0, std::ceil(ready / options_.cycle));
  }

  options options_{};
};
static_assert(fusion_policy<when_ready>);

}  // namespace tutti::fusion
