// A few ranks that represent many, compared with a simulation of all of them message by message.
#include "tutti/core/representatives.hpp"

#include <algorithm>
#include <cstddef>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

#include "tutti/architecture/all_gather.hpp"
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/architecture/elastic_servers.hpp"
#include "tutti/architecture/majority_vote.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/collective/hierarchical.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/collective/torus.hpp"
#include "tutti/compression/none.hpp"
#include "tutti/compression/qsgd.hpp"
#include "tutti/compression/sign.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/core/replay.hpp"
#include "tutti/fusion/all.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/schedule/by_priority.hpp"
#include "tutti/strategies/all_reduce_spec.hpp"
#include "tutti/strategies/tf_reduction.hpp"
#include "tutti/transport/simulated.hpp"

namespace tutti::test {
namespace {

using transport::link;
using transport::network;
using transport::simulated;

constexpr link nic{1.25e9, 50e-6};
constexpr link inside{6e9, 5e-6};
constexpr int servers = 4;

/// Returns tensors of many sizes, with 102 MB and 250 ms in all, as in ResNet-50.
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
  over.set_data_factors(who.data);
  for (int rank = who.few.workers; rank < who.few.workers + who.few.servers; ++rank) {
    over.isolate(rank, {nic.bytes_per_second / who.server_load, nic.latency});
  }
  return over;
}

template <class Strategy>
replayed simulate(const representatives& who, engine_options<Strategy> set = {}) {
  if constexpr (facts::has_servers<typename Strategy::architecture>) {
    set.architecture.servers = who.few.servers;
  }
  replay<Strategy> job(model(), set, payloads::counted, {.iterations = 2, .warmup = 1});
  run_simulated(around(who), [&job](simulated& world) { return job(world); });
  return job.result();
}
template <class Strategy>
seconds iteration(const representatives& who, const engine_options<Strategy>& set = {}) {
  return simulate<Strategy>(who, set).quantile(0.5);
}

/// Returns `few` ranks that represent `many`, for a model whose tensors are chunks.
template <class Strategy>
representatives represented(placement many, int few, const engine_options<Strategy>& set = {}) {
  using architecture = typename Strategy::architecture;
  if constexpr (requires { architecture::alone(many); }) {
    return represent<architecture>(many, few);
  } else {
    std::vector<chunk> chunks;
    for (auto all = model(); !all.empty(); all.pop_back()) {
      chunks.push_back({.elements = all.back().elements});
    }
    return represent<architecture>(set.architecture, many, few, chunks).value();
  }
}

/// Expects steps of half of the ranks to take as long as those of all, and the first of them to
/// send its share of what the first of all ranks sends.
template <class Strategy>
void half_stand_for_all(const placement& many, const engine_options<Strategy>& set = {}) {
  const auto who = represented<Strategy>(many, many.workers / 2, set);
  const replayed all = simulate<Strategy>({many}, set);
  const replayed some = simulate<Strategy>(who, set);
  SCOPED_TRACE(many.workers);
  EXPECT_NEAR(some.quantile(0.5) / all.quantile(0.5), 1, 0.02) << many.per_host << " a host";
  EXPECT_NEAR(who.sent * static_cast<double>(some.bytes_sent) / static_cast<double>(all.bytes_sent),
              1, 0.01)
      << many.per_host << " a host";
}

template <class Strategy>
class FewForMany : public testing::Test {};

template <class Collective>
using added_by = architecture::all_reduce<Collective>;
using ring = added_by<collective::ring>;
using stood_for =
    testing::Types<compose<ring>, compose<ring, fusion::up_to>, compose<ring, fusion::all>,
                   compose<ring, partition::into, schedule::by_priority>,
                   compose<architecture::all_gather, compression::sign>,
                   compose<architecture::all_gather, compression::qsgd>,
                   compose<architecture::reduce_scatter_all_gather, compression::sign>,
                   compose<architecture::majority_vote, compression::sign>,
                   compose<architecture::parameter_server<>, partition::into>,
                   compose<added_by<collective::torus>>,
                   compose<added_by<collective::hierarchical<>>>>;
TYPED_TEST_SUITE(FewForMany, stood_for);

TYPED_TEST(FewForMany, TakeAsLongWithinTwoPercent) {
  constexpr int extra = facts::has_servers<typename TypeParam::architecture> ? servers : 0;
  for (const int per_host : {1, 4}) {
    for (const int workers : {8, 24, 64}) {
      half_stand_for_all<TypeParam>({workers, extra, per_host});
    }
  }
}

/// Ranges of sizes take ways of different costs, and chunks of each range are stretched by its own
/// factor.
using by_size = compose<added_by<strategies::tf_reduction>>;
engine_options<by_size> spec(const char* text) {
  return {.architecture = strategies::of_all_reduce_spec(text)};
}
TEST(Representatives, GoTheWayOfTheirSize) {
  for (const char* text : {"nccl", "xring#2", "nccl/pscpu:2k:xring", "nccl/xring:2k:nccl"}) {
    for (const int per_host : {1, 4}) {
      for (const int workers : {8, 24, 64}) {
        SCOPED_TRACE(text);
        half_stand_for_all<by_size>({workers, 0, per_host}, spec(text));
      }
    }
  }
}
TEST(Representatives, HalveAndDoubleInPowersOfTwo) {
  for (const placement& many : {placement{8}, placement{64}, placement{32, 0, 4}}) {
    half_stand_for_all<by_size>(many, spec("nccl/rechd"));
  }
}
TEST(Representatives, AreNoneWhereAWayHasNoClosedForm) {
  const std::vector<chunk> one{{.elements = 8}};
  const auto has_one = [&](const char* text) {
    return represent<by_size::architecture>(spec(text).architecture, {2000}, 16, one).has_value();
  };
  EXPECT_TRUE(has_one("xring"));
  EXPECT_FALSE(has_one("psgpu"));
  EXPECT_FALSE(has_one("xring:32k:pscpu/pscpu")) << "though no chunk is so large";
  EXPECT_FALSE(has_one("nccl/rechd")) << "2000 hosts are no power of two";
}

template <class Architecture>
constexpr bool has_a_form = requires {
  Architecture::alone(placement());
};
TEST(Representatives, AreNoneOfArchitecturesWithoutAForm) {
  EXPECT_FALSE(has_a_form<architecture::elastic_servers>);
  EXPECT_TRUE(has_a_form<architecture::parameter_server<>>);
}

/// 2002 ranks are on hosts of four, with two on the last, and five hosts represent them.
TEST(Representatives, FillTheirHostsAsTheyAreFilled) {
  const auto who = represented<compose<added_by<collective::hierarchical<>>>>({2002, 0, 4}, 20);
  EXPECT_EQ(who.few.workers, 18);
  EXPECT_NEAR(who.data.front().latency, 500.0 / 4, 1e-9);
  EXPECT_NEAR(who.data.front().bytes, (500.0 / 501) / (4.0 / 5), 1e-9);
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
