#pragma once

#include <algorithm>

/// Lower bounds on the bytes that must pass the busiest NIC in one direction, whatever the order
/// and the algorithm, for each kind of exchange. Divided by the NIC's rate they bound the time of a
/// step's communication. A NIC sends and receives at the same time, each at its full rate.
/// `payload` is one worker's bytes in a step. Each host has `per_host` ranks, except that the last
/// has the remainder.
namespace tutti::bound {

constexpr int hosts(int ranks, int per_host) {
  // Rounds up without the sum ranks + per_host - 1, which could overflow.
  return ranks / per_host + (ranks % per_host == 0 ? 0 : 1);
}

/// The number of ranks on host number `host`.
constexpr int ranks_on(int host, int ranks, int per_host) {
  return std::min(per_host, ranks - host * per_host);
}

/// For a sum that every host has at the end. The host that finishes a part of it receives that part
/// from the other h-1 hosts, each of which can have added up its own ranks' parts, and must send
/// each of them the result. So the h NICs send 2 (h-1) payloads together, and one of them at least
/// 2 (h-1)/h. A ring attains this (Patarasuk and Yuan, JPDC 2009), and so do direct sends of each
/// part to the host that finishes it.
constexpr double all_reduce(double payload, int hosts) {
  return 2.0 * (hosts - 1) / hosts * payload;
}

/// For payloads that cannot be added: every host receives the payloads of all ranks on other hosts.
/// The last host receives the most, because it has the fewest ranks of its own.
constexpr double all_gather(double payload, int ranks, int per_host) {
  const int last = hosts(ranks, per_host) - 1;
  return (ranks - ranks_on(last, ranks, per_host)) * payload;
}

/// For one rank of the first host that receives the payloads of all ranks: those of the other hosts
/// pass its NIC.
constexpr double gather(double payload, int ranks, int per_host) {
  return (ranks - ranks_on(0, ranks, per_host)) * payload;
}

/// For payloads that can be added only after decoding: the rank that finishes a part receives it
/// encoded from every rank on another host, and sends each of them the encoded result. Each of the
/// W ranks finishes one part, so the g ranks of a host send the other W - g ranks their parts of g
/// payloads, and as many bytes of results. A host sends the most where g is nearest to W/2; no host
/// sends more than a full one.
constexpr double compressed_all_reduce(double payload, int ranks, int per_host) {
  const double here = ranks_on(0, ranks, per_host);
  return 2 * here * (ranks - here) / ranks * payload;
}

/// For k servers on hosts of their own: each receives its share, payload / k, from every worker and
/// sends as much back at the same time. A host of g workers sends g payloads and receives as much.
/// The result is in bytes of a worker's NIC; a server's NIC is `speed` times as fast.
constexpr double servers(double payload, int workers, int servers, int per_host, double speed = 1) {
  return payload * std::max<double>(workers / (servers * speed), ranks_on(0, workers, per_host));
}

/// For k servers that are placed one after the other on the hosts of W workers, with the best
/// shares of the model for each. A host of g workers whose servers have the share x sends its
/// workers' pushes except for that share, g (1 - x), and answers of x to each of the other W - g
/// workers. It receives as much: g + x (W - 2g).
///
/// Where some host has no server, all hosts with servers are full, and equal shares are best; so
/// they are where all hosts are full. Otherwise the last host, of r workers, takes more, until it
/// is as busy as the others: if each of the n full hosts has the share x, the last has 1 - nx, and
/// x = (W - g - r) / (W - 2g + n (W - 2r)). If only one host is full, it takes all, and is no
/// busier than the last.
constexpr double servers_among_workers(double payload, int workers, int servers, int per_host) {
  const int all = hosts(workers, per_host);
  const double here = ranks_on(0, workers, per_host);
  const double last = ranks_on(all - 1, workers, per_host);
  double share = 1.0 / std::min(servers, all);
  if (servers >= all && last < here) {
    const double full = all - 1;
    share = full == 1
                ? 1
                : (workers - here - last) / (workers - 2 * here + full * (workers - 2 * last));
  }
  return payload * (here + share * (workers - 2 * here));
}

/// For n hosts that both train and serve, and k more that only serve. One of the former, which
/// serves the share x, sends 1 - x to the other servers and answers of (n-1) x to the other
/// workers. One of the latter, which serves the share y, sends n y. All end at the same time if
/// 1 + (n-2) x = n y, and the shares add up to one if n x + k y = 1. Hence
/// y = 2 (n-1) / (n^2 + kn - 2k). With k = 0 this is the ring's bound, with k = n one payload. More
/// than n servers of the second kind do not help. After: BytePS, Jiang et al., OSDI 2020, section
/// 4.1.
constexpr double shared_servers(double payload, int hosts, int more) {
  const double n = hosts;
  const double k = std::min(more, hosts);
  return hosts < 2 ? 0 : payload * n * 2 * (n - 1) / (n * n + k * n - 2 * k);
}

/// For an all-reduce in two levels: a reduce-scatter inside each host, an all-reduce of each rank
/// with its counterparts on the other hosts, and an all-gather inside each host. A NIC carries as
/// much as for any all-reduce between hosts. A rank's link inside a host of g ranks carries
/// 2 (g-1)/g of the payload.
struct hierarchical {
  double nic{};
  double inside{};
};
constexpr hierarchical hierarchical_all_reduce(double payload, int hosts, int per_host) {
  return {all_reduce(payload, hosts), all_reduce(payload, per_host)};
}

}  // namespace tutti::bound
