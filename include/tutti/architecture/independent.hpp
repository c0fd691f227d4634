#pragma once

#include <cstddef>

#include "tutti/base/task.hpp"
#include "tutti/role/architecture.hpp"

namespace tutti::architecture {

/// Every rank trains alone on what it sees: the bound that no communication can beat.
/// Wire: nothing. Cost: nothing; the replicas drift apart.
/// After: tf_cnn_benchmarks' `independent`.
struct independent {
  using role = tutti::role::architecture;
  static constexpr bool adds_payloads = false;
  static constexpr bool completes_alone = true;

  static constexpr double busiest_card(double, double, placement) { return 0; }
  static constexpr exchange_cost alone(placement) { return {}; }

  template <class Compression>
  std::size_t workspace_bytes(const Compression&, std::size_t, int) const {
    return 0;
  }

  template <class Endpoint, class Parcel>
  task exchange(Endpoint, Parcel) const {
    co_return;
  }
};
static_assert(architecture_policy<independent>);

}  // namespace tutti::architecture
