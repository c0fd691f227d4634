// expect: tutti: a bound needs the bytes through the busiest NIC
#include <cstddef>
#include <cstdint>

#include "tutti/base/task.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/core/replay.hpp"
#include "tutti/transport/simulated.hpp"

/// Every rank keeps its own gradient.
struct alone {
  using role = tutti::role::architecture;
  static constexpr bool adds_payloads = false;
  static constexpr bool completes_alone = true;
#ifdef GOOD
  static constexpr double busiest_nic(double, double, tutti::placement) { return 0; }
#endif

  template <class World>
  struct state {
    state(World&, const tutti::no_options&) {}
    std::size_t workspace_bytes(std::size_t) const { return 0; }
    tutti::task exchange(typename World::endpoint, const typename World::launch& what) {
      what.released();
      co_return;
    }
  };
};

tutti::task predicted(tutti::replay<tutti::compose<alone>>& job,
                      tutti::transport::simulated& world) {
  return job(world);
}
