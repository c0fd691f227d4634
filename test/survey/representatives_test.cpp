// A few ranks that represent many, against the many simulated message by message.
#include "tutti/core/representatives.hpp"

#include <algorithm>
#include <cstddef>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

#include "tutti/architecture/all_gather.hpp"
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/architecture/majority_vote.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/compression/none.hpp"
#include "tutti/compression/qsgd.hpp"
#include "tutti/compression/sign.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/core/replay.hpp"
#include "tutti/fusion/all.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/schedule/by_priority.hpp"
#include "tutti/transport/simulated.hpp"

namespace tutti::test {
namespace {

using transport::link;
using transport::network;
using transport::simulated;

constexpr link nic{1.25e9, 50e-6};
constexpr link inside{6e9, 5e-6};
constexpr int servers = 4;

/// Tensors of all sizes; together 102 MB and 250 ms, as ResNet-50.
std::vector<computation> model() {
  std::vector<computation> all;
  for (std::size_t i = 0; i < 30; ++i) {
    const std::size_t elements = i % 3 == 0 ? 1000 : 1'275'000;
    all.push_back({"tensor", elements, 2.75e-3, 5.5e-3});
  }
  return all;
}

network around(const representatives& who) {
  network over(who.few.workers + who.few.servers, nic, who.few.per_host, inside);
  over.stretch_data(who.data);
  for (int rank = who.few.workers; rank < who.few.workers + who.few.servers; ++rank) {
    over.isolate(rank, {nic.bytes_per_second / who.server_load, nic.latency});
  }
  return over;
}

template <class Strategy>
seconds iteration(const representatives& who) {
  engine_options<Strategy> set;
  if constexpr (facts::has_servers<typename Strategy::architecture>) {
    set.architecture.servers = who.few.servers;
  }
  replay<Strategy> job(model(), set, payloads::counted, {.iterations = 2, .warmup = 1});
  run_simulated(around(who), [&job](simulated& world) { return job(world); });
  return job.result().quantile(0.5);
}

template <class Strategy>
class FewForMany : public testing::Test {};

using ring = architecture::all_reduce<collective::ring>;
using strategies =
    testing::Types<compose<ring>, compose<ring, fusion::up_to>, compose<ring, fusion::all>,
                   compose<ring, partition::into, schedule::by_priority>,
                   compose<architecture::all_gather, compression::sign>,
                   compose<architecture::all_gather, compression::qsgd>,
                   compose<architecture::reduce_scatter_all_gather, compression::sign>,
                   compose<architecture::majority_vote, compression::sign>,
                   compose<architecture::parameter_server<>, partition::into>>;
TYPED_TEST_SUITE(FewForMany, strategies);

TYPED_TEST(FewForMany, TakeAsLongWithinTwoPercent) {
  using architecture = typename TypeParam::architecture;
  constexpr int extra = facts::has_servers<architecture> ? servers : 0;
  for (const int per_host : {1, 4}) {
    for (const int workers : {8, 24, 64}) {
      const placement many{workers, extra, per_host};
      const seconds all = iteration<TypeParam>({many});
      const seconds some = iteration<TypeParam>(represent<architecture>(many, workers / 2));
      EXPECT_NEAR(some / all, 1, 0.02) << workers << " workers, " << per_host << " a host";
    }
  }
}

TEST(Representatives, AHostWithRoomForAllIsOne) {
  const auto who = represent<ring>({64, 0, std::numeric_limits<int>::max()}, 4);
  EXPECT_EQ(who.few.workers, 64);
}

TEST(Representatives, OneRingIsExact) {
  using alone = compose<ring, fusion::all>;
  for (const int workers : {8, 64, 512}) {
    const auto who = represent<ring>({workers, 0, 1}, 4);
    EXPECT_EQ(who.few.workers, 4);
    const double p = workers;
    const double bytes = 10 * (1000 + 2 * 1'275'000) * 4;
    const double ring_time =
        2 * (p - 1) * nic.latency + 2 * (p - 1) / p * bytes / nic.bytes_per_second;
    EXPECT_NEAR(iteration<alone>(who), 30 * 8.25e-3 + ring_time, 1e-6) << workers;
  }
}

}  // namespace
}  // namespace tutti::test
