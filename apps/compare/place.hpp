#pragma once

#include <map>
#include <optional>
#include <string>

#include "tutti/core/representatives.hpp"
#include "tutti/transport/network.hpp"

namespace compare {

/// Where a job's ranks live: so many behind each NIC, and what connects those of one host.
struct place {
  std::string name{};
  int per_host{1};
  tutti::transport::link nic{};
  tutti::transport::link inside = tutti::transport::network::at_once;
  std::optional<tutti::transport::link> server_nic{};  ///< like the workers', unless it is said
  /// NICs of workers that have hosts and NICs of their own.
  std::map<int, tutti::transport::link> nic_of_rank{};

  /// Where every NIC has so many times the rate.
  place faster(double times) const;
  /// On which somebody lives.
  int hosts(const tutti::placement& all) const;
  /// Workers share hosts.
  tutti::transport::network with(const tutti::representatives& who) const;
};

/// `[COUNTx]RATEbit/LATENCY[/SHARE%]`, as 10Gbit/50us, 4x100Gbit/5us or 10Gbit/50us/75%, where one
/// message alone gets that share of the rate. Throws common::flag_error.
place parse_link(const std::string& text);

/// A named network, or the user's own from a file: a line `link COUNTxRATEbit/LATENCY` and, if the
/// ranks of a host take some time to reach one another, a line `inside RATEbit/LATENCY`; `servers
/// RATEbit/LATENCY` are the NICs of the servers' own hosts, `rank 2 RATEbit/LATENCY` is that of
/// worker 2, on a host of its own; `#` begins a comment. Throws common::flag_error with the nearest
/// name, or the file's line.
place find_network(const std::string& name);

}  // namespace compare
