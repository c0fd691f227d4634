#pragma once

#include <vector>

#include "support/unbuffered_library.hpp"
#include "tutti/base/host_stream.hpp"
#include "tutti/transport/in_process.hpp"
#include "tutti/transport/network.hpp"
#include "tutti/transport/shaped.hpp"
#include "tutti/transport/simulated.hpp"

/// Worlds in which strategies train (see strategy_laws.hpp). Two ranks live on each host.
namespace tutti::test {

inline std::vector<int> two_a_host(int ranks) {
  std::vector<int> hosts;
  for (int rank = 0; rank < ranks; ++rank) {
    hosts.push_back(rank / 2);
  }
  return hosts;
}

/// Returns a network of links of 10 Gbit/s and 50 microseconds.
inline transport::network ethernet(int ranks) {
  transport::network over(ranks, {1.25e9, 50e-6});
  for (int rank = 1; rank < ranks; rank += 2) {
    over.join(rank, rank - 1);
  }
  return over;
}

/// A world whose ranks are all in this process.
struct of_one_process {
  static bool holds(int) { return true; }
};

template <class Transport>
struct on_threads_of : of_one_process {
  using transport = Transport;

  template <class Body>
  static bool run(int ranks, Body body) {
    tutti::transport::run_ranks<transport>(ranks, body, two_a_host(ranks));
    return true;
  }
};

using on_threads = on_threads_of<transport::in_process>;
/// Each rank's memory belongs to a stream of that rank.
using on_host_streams =
    on_threads_of<transport::basic_in_process<host_stream, transport::by_mailbox>>;

/// Messages without tags, sent in the order of a stream.
struct in_stream_order : of_one_process {
  using transport = streamed;

  template <class Body>
  static bool run(int ranks, Body body) {
    run_streamed(ranks, body, groups::honoured, two_a_host(ranks));
    return true;
  }
};

/// Ranks on the virtual clock.
struct on_the_virtual_clock : of_one_process {
  using transport = tutti::transport::simulated;

  template <class Body>
  static bool run(int ranks, Body body) {
    tutti::transport::run_simulated(ethernet(ranks), body);
    return true;
  }
};

/// The shaped network in real time, with a thread for each rank.
struct on_shaped_threads : of_one_process {
  using transport = tutti::transport::shaped<tutti::transport::in_process>;

  template <class Body>
  static bool run(int ranks, Body body) {
    tutti::transport::run_ranks(
        ranks,
        [&](tutti::transport::in_process& inner) {
          tutti::transport::run_shaped(inner, ethernet(ranks), body);
        },
        two_a_host(ranks));
    return true;
  }
};

}  // namespace tutti::test
