#pragma once

#include <algorithm>

/// Bytes that must pass the busiest NIC in one direction, whatever the order and the algorithm of
/// its kind: divided by the NIC's rate, no step's communication is shorter. NICs work in both
/// directions at once. `payload` is one worker's bytes in a step. Hosts have `per_host` ranks each,
/// but the last what is left.
namespace tutti::bound {

constexpr int hosts(int ranks, int per_host) {
  return ranks / per_host + (ranks % per_host == 0 ? 0 : 1);  // no sum, which would overflow
}

/// Ranks that live on a host.
constexpr int ranks_on(int host, int ranks, int per_host) {
  return std::min(per_host, ranks - host * per_host);
}

/// A sum that every host has at the end. Whoever finishes a part hears of it from the other h-1
/// hosts, which can have added up their own addends, and each of them must get the result: 2 (h-1)
/// payloads leave the h NICs together, so one of them sends 2 (h-1)/h. A ring attains it
/// (Patarasuk and Yuan, JPDC 2009), and so do direct sends of each part to whoever finishes it.
constexpr double all_reduce(double payload, int hosts) {
  return 2.0 * (hosts - 1) / hosts * payload;
}

/// Payloads that do not add: every host receives those of all ranks that live elsewhere, and the
/// last one has the fewest of its own.
constexpr double all_gather(double payload, int ranks, int per_host) {
  const int last = hosts(ranks, per_host) - 1;
  return (ranks - ranks_on(last, ranks, per_host)) * payload;
}

/// One rank of the first host receives all others' payloads: those of all ranks elsewhere.
constexpr double gather(double payload, int ranks, int per_host) {
  return (ranks - ranks_on(0, ranks, per_host)) * payload;
}

/// Payloads that add only where they are decoded: whoever finishes a part receives it encoded from
/// every rank that lives elsewhere, and sends each of them the encoded result. Each of W ranks
/// finishes one part, so the g of a host send the other W - g their parts of g payloads, and as
/// many bytes of results. That is the most where g is nearest to W/2: on a full host, and no less
/// there than on the last.
constexpr double compressed_all_reduce(double payload, int ranks, int per_host) {
  const double here = ranks_on(0, ranks, per_host);
  return 2 * here * (ranks - here) / ranks * payload;
}

/// k servers on hosts of their own: each receives its share, payload / k, from every worker and
/// sends as much back, at the same time; a host of g workers sends g payloads and receives as much.
/// Bytes of a worker's NIC, which may be slower than a server's by the factor `speed`.
constexpr double servers(double payload, int workers, int servers, int per_host, double speed = 1) {
  return payload * std::max<double>(workers / (servers * speed), ranks_on(0, workers, per_host));
}

/// k servers, one after the other, on the hosts of W workers, whatever the share of each. A host
/// whose servers have the share x sends the pushes of its g workers, but for x, and x to the other
/// W - g; it receives as much: g + x (W - 2g). Where some host is without a server all others are
/// full, and even shares the best; so they are where all hosts are full. Otherwise the last host,
/// of r workers, takes more, until it is as busy as the others: with n full hosts of the share x it
/// has 1 - nx, and x = (W - g - r) / (W - 2g + n (W - 2r)). One full host takes all, and is no
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

/// n hosts that train and serve, and k more that only serve. One of the former, which serves the
/// share x, sends 1 - x to the others and their answers, (n-1) x; one of the latter, which serves
/// y, sends n y. All are done together when 1 + (n-2) x = n y, and n x + k y = 1 is all there is:
/// y = 2 (n-1) / (n^2 + kn - 2k). With k = 0 that is the ring's bound, with k = n one payload.
/// After: BytePS, Jiang et al., OSDI 2020, section 4.1. Beyond n servers more do not help.
constexpr double shared_servers(double payload, int hosts, int more) {
  const double n = hosts;
  const double k = std::min(more, hosts);
  return hosts < 2 ? 0 : payload * n * 2 * (n - 1) / (n * n + k * n - 2 * k);
}

/// All-reduce in two levels: inside each host a reduce-scatter, then each rank with its like on the
/// other hosts, then inside again. A NIC carries what any all-reduce between hosts does; a rank's
/// link inside carries 2 (g-1)/g of the payload.
struct hierarchical {
  double nic{};
  double inside{};
};
constexpr hierarchical hierarchical_all_reduce(double payload, int hosts, int per_host) {
  return {all_reduce(payload, hosts), all_reduce(payload, per_host)};
}

}  // namespace tutti::bound
