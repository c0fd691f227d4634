// Bounds against exhaustive search over how the work is shared out.
#include "tutti/base/bounds.hpp"

#include <algorithm>
#include <cstddef>
#include <gtest/gtest.h>
#include <vector>

namespace tutti::test {
namespace {

/// The least that the busiest card can do when n hosts serve the share x each and k more the rest.
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

TEST(Bounds, MeetWhereTheyAreTheSameThing) {
  for (const int n : {2, 3, 5, 64}) {
    EXPECT_DOUBLE_EQ(bound::shared_servers(7, n, 0), bound::all_reduce(7, n));
    EXPECT_DOUBLE_EQ(bound::shared_servers(7, n, n), bound::servers(7, n, n, 1));
    EXPECT_DOUBLE_EQ(bound::compressed_all_reduce(7, n, 1), bound::all_reduce(7, n));
    EXPECT_DOUBLE_EQ(bound::hierarchical_all_reduce(7, n, 4).card, bound::all_reduce(7, n));
  }
  EXPECT_DOUBLE_EQ(bound::servers(7, 4, 1, 1, 4), bound::servers(7, 4, 4, 1));
  EXPECT_DOUBLE_EQ(bound::all_reduce(7, 1), 0);
  EXPECT_DOUBLE_EQ(bound::all_gather(7, 4, 4), 0);
}

/// Every message of a step with k servers on the workers' hosts, counted at both ends.
double busiest_among_workers(int workers, int servers, int per_host) {
  const int hosts = (workers + per_host - 1) / per_host;
  std::vector<double> sent(static_cast<std::size_t>(hosts));
  std::vector<double> received(sent);
  for (int worker = 0; worker < workers; ++worker) {
    for (int server = 0; server < servers; ++server) {
      const auto from = static_cast<std::size_t>(worker / per_host);
      const auto to = static_cast<std::size_t>(server % hosts);
      if (from != to) {  // a push and its answer
        sent[from] += 1.0 / servers;
        received[to] += 1.0 / servers;
        sent[to] += 1.0 / servers;
        received[from] += 1.0 / servers;
      }
    }
  }
  return std::max(std::ranges::max(sent), std::ranges::max(received));
}

TEST(Bounds, ServersAmongWorkersAreTheirMessages) {
  for (const int per_host : {1, 2, 4}) {
    for (const int hosts : {1, 2, 3, 5}) {
      for (int servers = 1; servers <= 3 * hosts; ++servers) {
        const int workers = hosts * per_host;
        EXPECT_NEAR(bound::servers_among_workers(1, workers, servers, per_host),
                    busiest_among_workers(workers, servers, per_host), 1e-12)
            << workers << " workers, " << servers << " servers, " << per_host << " a host";
      }
    }
  }
  EXPECT_DOUBLE_EQ(bound::servers_among_workers(7, 4, 4, 1), bound::all_reduce(7, 4));
}

TEST(Bounds, OfResNet50OnFourWorkers) {
  // 102 MB, 4 workers, 1 Gbit/s: one server 3.3 s, four 0.82 s, a ring 1.23 s.
  constexpr double rate = 125e6;
  EXPECT_NEAR(bound::servers(102.2e6, 4, 1, 1) / rate, 3.27, 0.01);
  EXPECT_NEAR(bound::servers(102.2e6, 4, 4, 1) / rate, 0.818, 0.001);
  EXPECT_NEAR(bound::all_reduce(102.2e6, 4) / rate, 1.226, 0.001);
}

}  // namespace
}  // namespace tutti::test
