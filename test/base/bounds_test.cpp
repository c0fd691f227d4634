// Compares bounds with an exhaustive search over how the work is divided.
#include "tutti/base/bounds.hpp"

#include <algorithm>
#include <cstddef>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

namespace tutti::test {
namespace {

/// Returns the least load of the busiest NIC if n hosts serve the share x each and k more hosts
/// serve the rest.
double best_share(int n, int k) {
  double best = 1e9;
  constexpr int steps = 200'000;
  for (int i = 0; i <= steps; ++i) {
    const double x = static_cast<double>(i) / steps / n;
    const double rest = k == 0 ? 0 : (1 - n * x) / k;
    if (k == 0 && i < steps) {
      continue;
    }
    best = std::min(best, std::max((1 - x) + (n - 1) * x, n * rest));
  }
  return best;
}

TEST(Bounds, SharedServersAreTheBestSplit) {
  for (const int n : {2, 3, 4, 8, 16}) {
    for (int k = 0; k <= n; ++k) {
      EXPECT_NEAR(bound::shared_servers(1, n, k), best_share(n, k), 2e-4) << n << " and " << k;
    }
  }
  EXPECT_EQ(bound::shared_servers(1, 1, 4), 0);
  EXPECT_DOUBLE_EQ(bound::shared_servers(1, 4, 9), 1);
}

TEST(Bounds, HostsAreCountedHoweverManyRanksHaveRoom) {
  constexpr int most = std::numeric_limits<int>::max();
  EXPECT_EQ(bound::hosts(0, 4), 0);
  EXPECT_EQ(bound::hosts(8, 4), 2);
  EXPECT_EQ(bound::hosts(9, 4), 3);
  EXPECT_EQ(bound::hosts(4, most), 1);
  EXPECT_EQ(bound::hosts(most, most), 1);
  EXPECT_EQ(bound::hosts(most, 1), most);
  EXPECT_EQ(bound::ranks_on(0, 4, most), 4);
}

TEST(Bounds, MeetWhereTheyAreTheSameThing) {
  for (const int n : {2, 3, 5, 64}) {
    EXPECT_DOUBLE_EQ(bound::shared_servers(7, n, 0), bound::all_reduce(7, n));
    EXPECT_DOUBLE_EQ(bound::shared_servers(7, n, n), bound::servers(7, n, n, 1));
    EXPECT_DOUBLE_EQ(bound::compressed_all_reduce(7, n, 1), bound::all_reduce(7, n));
  }
  EXPECT_DOUBLE_EQ(bound::servers(7, 4, 1, 1, 4), bound::servers(7, 4, 4, 1));
  EXPECT_DOUBLE_EQ(bound::all_reduce(7, 1), 0);
  EXPECT_DOUBLE_EQ(bound::all_gather(7, 4, 4), 0);
}

/// The bytes that pass the hosts' NICs in both directions.
class nics {
 public:
  explicit nics(int hosts) : sent_(static_cast<std::size_t>(hosts)), received_(sent_) {}

  void message(int from, int to, double bytes) {
    if (from != to) {
      sent_[static_cast<std::size_t>(from)] += bytes;
      received_[static_cast<std::size_t>(to)] += bytes;
    }
  }
  double busiest() const { return std::max(std::ranges::max(sent_), std::ranges::max(received_)); }

 private:
  std::vector<double> sent_;
  std::vector<double> received_;
};

int hosts_of(int workers, int per_host) { return (workers - 1) / per_host + 1; }

/// Checks whole hosts and others, including one with room for more ranks.
template <class Check>
void everywhere(Check check) {
  for (const int per_host : {1, 2, 3, 4}) {
    for (int workers = 1; workers <= 5 * per_host; ++workers) {
      SCOPED_TRACE(std::to_string(workers) + " workers, " + std::to_string(per_host) + " a host");
      check(workers, per_host);
    }
  }
}

/// Returns the busiest NIC's load for every push to `servers` and its answer.
template <class HostOf>
double busiest_of_servers(int workers, int servers, int per_host, HostOf host_of) {
  nics all(hosts_of(workers, per_host) + servers);
  for (int worker = 0; worker < workers; ++worker) {
    for (int server = 0; server < servers; ++server) {
      all.message(worker / per_host, host_of(server), 1.0 / servers);
      all.message(host_of(server), worker / per_host, 1.0 / servers);
    }
  }
  return all.busiest();
}

/// Returns the least load of the busiest of these hosts, by bisection. For a given load, each host
/// that serves can take any share within an interval, and the shares of all hosts must be able to
/// sum to one.
double best_share_among(int workers, int servers, int per_host) {
  const int hosts = hosts_of(workers, per_host);
  const auto possible = [&](double busiest) {
    double least = 0;
    double most = 0;
    for (int host = 0; host < hosts; ++host) {
      const double own = std::min(per_host, workers - host * per_host);
      const double others = workers - own;
      // The own pushes except for the host's share, and the share of all other pushes: own (1 - x)
      // + others x.
      const auto fits = [&](double x) { return own * (1 - x) + others * x <= busiest + 1e-13; };
      const double limit = (busiest - own) / (others - own);
      if (host >= servers) {
        if (!fits(0)) {
          return false;
        }
      } else if (!fits(0) && !fits(1)) {
        return false;
      } else {
        least += fits(0) ? 0 : limit;
        most += fits(1) ? 1 : limit;
      }
    }
    return least <= 1 && most >= 1;
  };
  double low = 0;
  double high = workers;
  for (int i = 0; i < 60; ++i) {
    (possible((low + high) / 2) ? high : low) = (low + high) / 2;
  }
  return high;
}

TEST(Bounds, ServersAmongWorkersAreTheBestSplit) {
  everywhere([](int workers, int per_host) {
    const int hosts = hosts_of(workers, per_host);
    for (int servers = 1; servers <= 3 * hosts; ++servers) {
      const double bound = bound::servers_among_workers(1, workers, servers, per_host);
      EXPECT_NEAR(bound, best_share_among(workers, servers, per_host), 1e-11)
          << servers << " servers";
      const double even = busiest_of_servers(workers, servers, per_host,
                                             [&](int server) { return server % hosts; });
      EXPECT_GE(even, bound - 1e-12) << servers << " servers";
      if (workers % per_host == 0 && (servers < hosts || servers % hosts == 0)) {
        EXPECT_NEAR(even, bound, 1e-12) << servers << " servers";
      }
    }
  });
  EXPECT_DOUBLE_EQ(bound::servers_among_workers(7, 4, 4, 1), bound::all_reduce(7, 4));
}

TEST(Bounds, ServersOfTheirOwnAreTheirMessages) {
  everywhere([](int workers, int per_host) {
    const int hosts = hosts_of(workers, per_host);
    for (int servers = 1; servers <= 3 * hosts; ++servers) {
      EXPECT_NEAR(bound::servers(1, workers, servers, per_host),
                  busiest_of_servers(workers, servers, per_host,
                                     [&](int server) { return hosts + server; }),
                  1e-12)
          << servers << " servers";
    }
  });
}

TEST(Bounds, OfAPartForEachRankAreItsMessages) {
  everywhere([](int workers, int per_host) {
    nics all(hosts_of(workers, per_host));
    for (int from = 0; from < workers; ++from) {
      for (int to = 0; to < workers; ++to) {
        all.message(from / per_host, to / per_host, 2.0 / workers);  // its part, and a result
      }
    }
    EXPECT_NEAR(bound::compressed_all_reduce(1, workers, per_host), all.busiest(), 1e-12);
  });
}

/// A payload needs to reach each host only once.
TEST(Bounds, OfPayloadsThatAllMustHaveAreTheirMessages) {
  everywhere([](int workers, int per_host) {
    const int hosts = hosts_of(workers, per_host);
    double most = 0;
    for (int host = 0; host < hosts; ++host) {
      nics to_it(hosts);
      for (int from = 0; from < workers; ++from) {
        to_it.message(from / per_host, host, 1);
      }
      most = std::max(most, to_it.busiest());
      if (host == 0) {
        EXPECT_DOUBLE_EQ(bound::gather(1, workers, per_host), to_it.busiest());
      }
    }
    EXPECT_DOUBLE_EQ(bound::all_gather(1, workers, per_host), most);
  });
}

TEST(Bounds, OfResNet50OnFourWorkers) {
  // 102 MB, 4 workers, 1 Gbit/s: 3.3 s with one server, 0.82 s with four, 1.23 s with a ring.
  constexpr double rate = 125e6;
  EXPECT_NEAR(bound::servers(102.2e6, 4, 1, 1) / rate, 3.27, 0.01);
  EXPECT_NEAR(bound::servers(102.2e6, 4, 4, 1) / rate, 0.818, 0.001);
  EXPECT_NEAR(bound::all_reduce(102.2e6, 4) / rate, 1.226, 0.001);
}

}  // namespace
}  // namespace tutti::test
