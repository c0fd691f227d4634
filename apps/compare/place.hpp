#pragma once

#include <map>
#include <optional>
#include <string>

#include "tutti/core/representatives.hpp"
#include "tutti/transport/network.hpp"

namespace compare {

/// The network of a job: how many ranks are behind each NIC, the NICs, and what connects the ranks
/// of one host.
struct place {
  std::string name{};
  int per_host{1};
  tutti::transport::link nic{};
  tutti::transport::link inside = tutti::transport::network::at_once;
  /// NIC of a server's own host; without it, `nic`.
  std::optional<tutti::transport::link> server_nic{};
  /// NICs of single workers, each of which then has a host of its own.
  std::map<int, tutti::transport::link> nic_of_rank{};

  /// Returns the network with every NIC faster by the factor `times`.
  place faster(double times) const;
  /// Returns how many hosts have at least one rank.
  int hosts(const tutti::placement& all) const;
  /// Returns the network for the transport, with workers grouped on hosts and servers placed on
  /// theirs.
  tutti::transport::network with(const tutti::representatives& who) const;
};

/// Parses `[COUNTx]RATEbit/LATENCY[/SHARE%]`, as 10Gbit/50us, 4x100Gbit/5us or 10Gbit/50us/75%,
/// where one message alone gets that share of the rate. Throws common::flag_error.
place parse_link(const std::string& text);

/// Returns a named network, or the user's own from a file. The file has a line `link
/// COUNTxRATEbit/LATENCY` and may have further lines: `inside RATEbit/LATENCY` if the ranks of a
/// host take some time to reach one another, `servers RATEbit/LATENCY` for the NICs of the servers'
/// own hosts, and `rank 2 RATEbit/LATENCY` for the NIC of worker 2, which then has a host of its
/// own. `#` begins a comment. Throws common::flag_error with the nearest name, or the line of the
/// file.
place find_network(const std::string& name);

}  // namespace compare
