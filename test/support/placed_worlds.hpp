#pragma once

#include <cstddef>
#include <vector>

#include "support/transports.hpp"
#include "support/unbuffered_library.hpp"
#include "tutti/transport/in_process.hpp"
#include "tutti/transport/network.hpp"
#include "tutti/transport/simulated.hpp"

/// Worlds that place each rank on a host that the test names (see collective_laws.hpp).
namespace tutti::test {

template <class Transport>
struct placed_threads {
  using transport = Transport;

  template <class Body>
  static bool run(const std::vector<int>& hosts, Body body) {
    tutti::transport::run_ranks<transport>(
        static_cast<int>(hosts.size()), [&](transport& world) { drive(world, body(world)); },
        hosts);
    return true;
  }
};

struct placed_simulated {
  using transport = tutti::transport::simulated;

  template <class Body>
  static bool run(const std::vector<int>& hosts, Body body) {
    const auto first_of = [&](int host) {
      return static_cast<int>(std::ranges::find(hosts, host) - hosts.begin());
    };
    const int ranks = static_cast<int>(hosts.size());
    tutti::transport::network over(ranks, {1e9, 5e-6});
    for (int rank = 0; rank < ranks; ++rank) {
      over.join(rank, first_of(hosts[static_cast<std::size_t>(rank)]));
    }
    tutti::transport::run_simulated(over, body);
    return true;
  }
};

/// Messages without tags that move in the order of a stream.
struct placed_streamed {
  using transport = streamed;

  template <class Body>
  static bool run(const std::vector<int>& hosts, Body body) {
    run_streamed(
        static_cast<int>(hosts.size()), [&](transport& world) { drive(world, body(world)); },
        groups::honoured, hosts);
    return true;
  }
};

}  // namespace tutti::test
