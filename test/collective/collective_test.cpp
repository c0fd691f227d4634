// Folds that are more than one addition, graphs, and which bytes pass which link. Laws of every
// collective are in collective_laws_test.cpp. One file, because all tests ask one recorder which
// bytes each rank sent to each other.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <initializer_list>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/placed_worlds.hpp"
#include "support/transports.hpp"
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/base/bounds.hpp"
#include "tutti/base/error.hpp"
#include "tutti/collective/addressable.hpp"
#include "tutti/collective/by_graph.hpp"
#include "tutti/collective/by_size.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/collective/excluding.hpp"
#include "tutti/collective/graphs.hpp"
#include "tutti/collective/halving_doubling.hpp"
#include "tutti/collective/hierarchical.hpp"
#include "tutti/collective/hierarchical_copy.hpp"
#include "tutti/collective/in_host_memory.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/collective/rings.hpp"
#include "tutti/collective/shuffle.hpp"
#include "tutti/collective/sliced_ring.hpp"
#include "tutti/collective/torus.hpp"
#include "tutti/compression/fp16.hpp"
#include "tutti/compression/none.hpp"
#include "tutti/role/archetypes.hpp"
#include "tutti/role/transport.hpp"
#include "tutti/strategies/all_reduce_spec.hpp"
#include "tutti/transport/any_transport.hpp"
#include "tutti/transport/in_process.hpp"
#include "tutti/transport/recording.hpp"

namespace tutti::test {
namespace {

float value(int rank, std::size_t i) {
  const auto mixed =
      static_cast<std::uint32_t>(rank * 7919) * 31u + static_cast<std::uint32_t>(i) * 2654435761u;
  return static_cast<float>(mixed >> 8) / 16777216.0f - 0.5f;
}

std::vector<float> data_of(int rank, std::size_t n) {
  std::vector<float> all(n);
  for (std::size_t i = 0; i < n; ++i) {
    all[i] = value(rank, i);
  }
  return all;
}

template <class Fold>
reduction<Fold> over(std::vector<float>& data, std::vector<std::byte>& scratch, Fold fold) {
  return {reinterpret_cast<std::byte*>(data.data()), data.size(), sizeof(float), fold, scratch};
}

/// Returns the sum on each of `ranks` threads.
template <class Collective, class World = transport::in_process&, class Fold>
std::vector<std::vector<float>> summed_on_threads(int ranks, std::size_t n, Fold fold) {
  std::vector<std::vector<float>> result(static_cast<std::size_t>(ranks));
  transport::run_ranks(ranks, [&](transport::in_process& thread) {
    World world(thread);
    auto data = data_of(world.rank(), n);
    std::vector<std::byte> scratch(Collective{}.scratch_bytes(n, sizeof(float), ranks));
    const endpoint self(world, tag{channel::data, 1, 0});
    for (int again = 0; again < 2; ++again) {  // so that a lane is used again in the next step
      data = data_of(world.rank(), n);
      drive(world, Collective{}.all_reduce(self, over(data, scratch, fold)));
    }
    result[static_cast<std::size_t>(world.rank())] = data;
  });
  return result;
}

template <class Collective>
void expect_sum(const std::vector<std::vector<float>>& result, int ranks, std::size_t n) {
  for (const auto& each : result) {
    ASSERT_EQ(each, result.front()) << "ranks must hold the same bits";
  }
  for (std::size_t i = 0; i < n; ++i) {
    float in_rank_order = value(0, i);
    double exact = static_cast<double>(value(0, i));
    double magnitude = std::abs(exact);
    for (int rank = 1; rank < ranks; ++rank) {
      in_rank_order += value(rank, i);
      exact += static_cast<double>(value(rank, i));
      magnitude += std::abs(static_cast<double>(value(rank, i)));
    }
    if constexpr (Collective::rank_ordered) {
      ASSERT_EQ(result.front()[i], in_rank_order) << i;
    } else {
      const double bound = (ranks - 1) * std::ldexp(1.0, -24) * magnitude;
      ASSERT_NEAR(static_cast<double>(result.front()[i]), exact, bound) << i;
    }
  }
}

constexpr std::size_t sizes[] = {0, 1, 7, 14, 15, 1001, 300'000};

TEST(Collective, AddressableWithAFoldThatLeavesTheSumEverywhere) {
  const compression::none uncompressed;
  const architecture::payload_fold<compression::none> fold{&uncompressed};
  for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 9}) {
    for (const std::size_t n : sizes) {
      expect_sum<collective::addressable>(
          summed_on_threads<collective::addressable>(ranks, n, fold), ranks, n);
    }
  }
}

/// Where a transport's type is erased, threads add in place as processes of one host do.
TEST(Collective, InHostMemoryOfThreads) {
  const compression::none uncompressed;
  const architecture::payload_fold<compression::none> fold{&uncompressed};
  for (const int ranks : {1, 2, 3, 4, 5}) {
    for (const std::size_t n : sizes) {
      expect_sum<collective::addressable>(
          summed_on_threads<collective::in_host_memory<collective::ring>, transport::any_transport>(
              ranks, n, fold),
          ranks, n);
    }
  }
}

/// Slices are of every part, so that they add up in the ring's order; what is short is not cut.
TEST(Collective, SlicedRingHasTheRingsBits) {
  using sliced = collective::sliced_ring<1000>;
  const compression::none uncompressed;
  const architecture::payload_fold<compression::none> fold{&uncompressed};
  for (const int ranks : {1, 2, 3, 4, 5}) {
    for (const std::size_t bytes : {0U, 4U, 999U, 1999U, 2000U, 3001U, 4000U, 90000U}) {
      const std::size_t n = bytes * static_cast<std::size_t>(ranks) / sizeof(float) + 1;
      EXPECT_EQ(summed_on_threads<sliced>(ranks, n, fold),
                summed_on_threads<collective::ring>(ranks, n, fold))
          << ranks << " ranks, " << bytes << " bytes a message";
    }
  }
}
TEST(Collective, SlicedRingSendsUpToFourMessagesForOne) {
  const compression::none uncompressed;
  const architecture::payload_fold<compression::none> fold{&uncompressed};
  transport::run_ranks(3, [&](transport::in_process& world) {
    const endpoint self(world, tag{channel::data, 1, 0});
    for (const auto& [bytes, slices] :
         {std::pair{1999U, 1U}, {2000U, 2U}, {3500U, 3U}, {9000U, 4U}}) {
      std::vector<float> data(3 * bytes / sizeof(float));
      std::vector<std::byte> none;
      const std::uint64_t before = world.counted().messages_sent;
      drive(world, collective::sliced_ring<1000>{}.all_reduce(self, over(data, none, fold)));
      EXPECT_EQ(world.counted().messages_sent - before, 4 * slices) << bytes;
    }
  });
}

/// Payloads of two bytes are folded like floats; small integers are exact in half precision.
template <class Collective>
void folds_halves() {
  for (const int ranks : {2, 3, 5}) {
    transport::run_ranks(ranks, [&](transport::in_process& world) {
      constexpr std::size_t n = 777;
      const compression::fp16 codec{};
      std::vector<float> numbers(n);
      for (std::size_t i = 0; i < n; ++i) {
        numbers[i] = static_cast<float>((i + static_cast<std::size_t>(world.rank())) % 50);
      }
      std::vector<std::byte> payload(codec.wire_bytes(n));
      codec.encode(world.queue(), numbers, wire{payload.data(), payload.size()});
      const auto fold = [&codec](auto& queue, std::byte* into, const std::byte* from,
                                 std::size_t bytes) {
        codec.fold(queue, wire{into, bytes}, const_wire(from, bytes));
      };
      std::vector<std::byte> scratch(Collective{}.scratch_bytes(n, 2, ranks));
      const reduction<decltype(fold)> data{payload.data(), n, 2, fold, scratch};
      const endpoint<transport::in_process> self(world, tag{channel::data, 3, 0});
      drive(world, Collective{}.all_reduce(self, data));
      std::vector<float> sum(n);
      codec.accumulate(world.queue(), const_wire(payload.data(), payload.size()), sum);
      for (std::size_t i = 0; i < n; ++i) {
        std::size_t expected = 0;
        for (int peer = 0; peer < ranks; ++peer) {
          expected += (i + static_cast<std::size_t>(peer)) % 50;
        }
        ASSERT_EQ(sum[i], static_cast<float>(expected));
      }
    });
  }
}
TEST(Collective, FoldsHalfPrecision) {
  folds_halves<collective::ring>();
  folds_halves<collective::halving_doubling>();
  folds_halves<collective::canonical>();
  folds_halves<collective::addressable>();
}

/// Returns the bytes that the ranks of each host send to other hosts in one all-reduce of `n`
/// phantom floats.
template <class Collective>
std::vector<std::size_t> sent_across(const std::vector<int>& hosts, std::size_t n) {
  std::vector<std::atomic<std::size_t>> sent(hosts.size());
  transport::run_ranks(
      static_cast<int>(hosts.size()),
      [&](transport::in_process& inner) {
        transport::recording<transport::in_process> world(inner, 10'000);
        const endpoint self(world, tag{channel::data, 1, 0});
        drive(world, Collective{}.all_reduce(
                         self, reduction<archetype::fold>{nullptr, n, sizeof(float), {}, {}}));
        EXPECT_EQ(world.missed(), 0U);
        for (const auto& each : world.log()) {
          if (each.what == transport::recorded::kind::send &&
              inner.host_of(each.peer) != inner.host_of(inner.rank())) {
            sent[static_cast<std::size_t>(inner.host_of(inner.rank()))] += each.bytes;
          }
        }
      },
      hosts);
  const std::set<int> distinct(hosts.begin(), hosts.end());
  return {sent.begin(), sent.begin() + static_cast<std::ptrdiff_t>(distinct.size())};
}

/// However many ranks share a host, and whether or not hosts have equally many, a NIC sends what it
/// would with one rank on each host.
TEST(Hierarchical, SendsOnceForEachHost) {
  constexpr std::size_t n = 2 * 3 * 3 * 100;  // divides evenly into parts of shares
  const std::size_t bytes = n * sizeof(float);
  using tree = collective::hierarchical<>;
  for (const std::vector<int>& two :
       {std::vector<int>{0, 1}, {0, 0, 1, 1}, {0, 1, 0, 1, 0, 1}, {0, 0, 0, 1}, {0, 1, 1, 0, 1}}) {
    EXPECT_EQ(sent_across<tree>(two, n), (std::vector<std::size_t>{bytes, bytes}));
  }
  for (int hosts = 1; hosts <= 3; ++hosts) {
    std::vector<int> even(static_cast<std::size_t>(2 * hosts));
    std::ranges::generate(even, [&, rank = 0]() mutable { return rank++ % hosts; });
    const auto bound = bound::hierarchical_all_reduce(static_cast<double>(bytes), hosts, 2);
    EXPECT_EQ(static_cast<double>(sent_across<tree>(even, n)[0]), bound.nic);
  }
  for (const std::vector<int>& three : {std::vector<int>{0, 1, 2}, {0, 0, 1, 1, 2, 2, 1}}) {
    EXPECT_EQ(sent_across<tree>(three, n), std::vector<std::size_t>(3, 2 * bytes * 2 / 3));
  }
  EXPECT_EQ(sent_across<tree>({0, 0, 0}, n), std::vector<std::size_t>{0});
  EXPECT_EQ(sent_across<tree>({-7, 2'000'000'000, -7, 5}, n),  // as hashes of names would be
            sent_across<tree>({0, 1, 0, 2}, n));
  EXPECT_THROW(transport::run_ranks(
                   2, [](transport::in_process&) {}, std::vector<int>{0}),
               usage_error);
}

using bytes = std::vector<std::vector<std::size_t>>;  // [sender][receiver]

/// Returns what ranks on these hosts send each other in one all-reduce of `n` phantom floats.
template <class Collective>
bytes sent_between(const Collective& how, const std::vector<int>& hosts, std::size_t n,
                   std::uint64_t route = 0) {
  bytes sent(hosts.size(), std::vector<std::size_t>(hosts.size()));
  placed_simulated::run(hosts, [&](transport::simulated& inner) -> task {
    transport::recording<transport::simulated> world(inner, 100);
    const endpoint self(world, tag{channel::data, 1, 0});
    reduction<archetype::fold> data{nullptr, n, sizeof(float), {}, {}};
    data.route = route;
    co_await how.all_reduce(self, data);
    for (const auto& each : world.log()) {
      if (each.what == transport::recorded::kind::send) {
        sent[at(world.rank())][at(each.peer)] += each.bytes;
      }
    }
  });
  return sent;
}

TEST(Collective, SlicesOfPhantomsAreSentToo) {
  const std::vector<int> hosts{0, 1, 2};
  for (const std::size_t n : {1UL, 100UL, 1000UL}) {
    EXPECT_EQ(sent_between(collective::sliced_ring<64>{}, hosts, n),
              sent_between(collective::ring{}, hosts, n));
  }
}
TEST(Collective, PhantomsLieInNoHostMemory) {
  transport::run_ranks(3, [](transport::in_process& inner) {
    transport::any_transport world(inner);
    const endpoint self(world, tag{channel::data, 1, 0});
    for (const std::size_t n : {3UL, 999UL}) {
      const std::uint64_t before = world.counted().bytes_sent;
      drive(world, collective::in_host_memory<collective::sliced_ring<64>>{}.all_reduce(
                       self, reduction<archetype::fold>{nullptr, n, sizeof(float), {}, {}}));
      EXPECT_EQ(world.counted().bytes_sent - before, 4 * n / 3 * sizeof(float));
    }
  });
}

/// Rings run along rows and columns, and a column's ring carries a share of the row's data. The
/// data of a rank outside the grid go to the first rank of its row and come back.
TEST(Torus, SendsAlongRowsAndColumns) {
  constexpr std::size_t whole = 60 * sizeof(float);
  const std::vector<int> apart{0, 1, 2, 3, 4, 5};
  const bytes two_by_three{// 2(c-1)/c to the right, 2(r-1)/(rc) to the other row
                           {0, 80 * 4, 0, 20 * 4, 0, 0}, {0, 0, 80 * 4, 0, 20 * 4, 0},
                           {80 * 4, 0, 0, 0, 0, 20 * 4}, {20 * 4, 0, 0, 0, 80 * 4, 0},
                           {0, 20 * 4, 0, 0, 0, 80 * 4}, {0, 0, 20 * 4, 80 * 4, 0, 0}};
  EXPECT_EQ(sent_between(collective::torus({.columns = 3}), apart, 60), two_by_three);
  EXPECT_EQ(sent_between(collective::torus(), {0, 0, 0, 1, 1, 1}, 60), two_by_three);
  const bytes rows_of_two_and_a_rest{{0, whole, 80 * 4, 0, 0},
                                     {whole, 0, 0, 0, 0},
                                     {0, 0, 0, whole, 80 * 4},
                                     {0, 0, whole, 0, 0},
                                     {80 * 4, 0, 0, 0, 0}};
  EXPECT_EQ(sent_between(collective::torus({.columns = 2}), {0, 1, 2, 3, 4}, 60),
            rows_of_two_and_a_rest);
  for (const int columns : {0, 1, 6, 100}) {  // then a row or a column is a ring
    EXPECT_EQ(sent_between(collective::torus({.columns = columns}), apart, 60),
              sent_between(collective::ring(), apart, 60));
  }
  try {
    collective::torus({.columns = -1});
    FAIL();
  } catch (const usage_error& refused) {
    EXPECT_STREQ(
        refused.what(),
        "collective::torus: columns must not be negative. Fix: 0 for one row per host, or 4");
  }
}

/// Adds `n` bytes in both directions between each of `members` and `main`.
void to_and_fro(bytes& all, std::initializer_list<std::size_t> members, std::size_t main,
                std::size_t n) {
  for (const std::size_t each : members) {
    all[each][main] += n;
    all[main][each] += n;
  }
}

/// One rank of each host exchanges with other hosts, as under tf_cnn_benchmarks' `nccl/xring`.
TEST(Hierarchical, ItsFirstRankCrosses) {
  using collective::ring;
  using one = collective::hierarchical<ring, ring, collective::crossing::first_rank>;
  constexpr std::size_t whole = 60 * sizeof(float);
  bytes five(5, std::vector<std::size_t>(5));
  to_and_fro(five, {1, 2}, 0, whole);
  to_and_fro(five, {4}, 3, whole);
  to_and_fro(five, {0}, 3, whole);  // around a ring of two, half each time
  EXPECT_EQ(sent_between(one(), {0, 0, 0, 1, 1}, 60), five);
  const strategies::tf_reduction named(strategies::of_all_reduce_spec("nccl/xring"));
  EXPECT_EQ(sent_between(named, {0, 0, 0, 1, 1}, 60), five);
  EXPECT_NE(sent_between(collective::hierarchical<>(), {0, 0, 0, 1, 1}, 60), five);
  EXPECT_EQ(sent_across<one>({0, 1, 2, 0, 1, 2}, 60),
            std::vector<std::size_t>(3, 2 * whole * 2 / 3));
}

/// Returns the elements that rank `here` of `ranks` sends around a ring, of `n` that are cut
/// evenly.
std::size_t around_a_ring(std::size_t here, std::size_t ranks, std::size_t n) {
  const auto part = [&](std::size_t which) {
    return n / ranks + (which % ranks < n % ranks ? 1 : 0);
  };
  return ranks == 1 ? 0 : 2 * n - part(here) - part(here + 1);
}

/// Returns what these hosts' ranks send each other in Horovod's NCCLHierarchicalAllreduce. On hosts
/// with equally many ranks, each of the L local ranks has floor(n / L) elements. The last one also
/// has the remainder, which it collects by a reduce and distributes by a broadcast. On other hosts
/// the first local rank has all n.
bytes as_horovod_sends(const std::vector<int>& hosts, std::size_t n) {
  std::vector<std::vector<std::size_t>> local(static_cast<std::size_t>(std::ranges::max(hosts)) +
                                              1);
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    local[static_cast<std::size_t>(hosts[rank])].push_back(rank);
  }
  std::erase_if(local, [](const auto& each) { return each.empty(); });
  const bool alike =
      std::ranges::all_of(local, [&](const auto& its) { return its.size() == local[0].size(); });
  const std::size_t size = local[0].size();
  const std::size_t a_rank = alike ? n / size : 0;
  const std::size_t remainder = alike ? n % size : n;
  const std::size_t root = alike ? size - 1 : 0;
  bytes all(hosts.size(), std::vector<std::size_t>(hosts.size()));
  for (const auto& ranks : local) {
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const std::size_t next = ranks[(i + 1) % ranks.size()];
      all[ranks[i]][next] += ranks.size() == 1 ? 0 : 2 * (ranks.size() - 1) * a_rank * 4;
      if (i != root) {
        all[ranks[i]][ranks[root]] += remainder * 4;
        all[ranks[root]][ranks[i]] += remainder * 4;
      }
      if (alike || i == root) {
        std::vector<std::size_t> cross;  // the ranks of the cross communicator, by rank
        for (const auto& its : local) {
          cross.push_back(its[i]);
        }
        std::ranges::sort(cross);
        const auto here =
            static_cast<std::size_t>(std::ranges::find(cross, ranks[i]) - cross.begin());
        const std::size_t share = a_rank + (i == root ? remainder : 0);
        all[ranks[i]][cross[(here + 1) % cross.size()]] +=
            4 * around_a_ring(here, cross.size(), share);
      }
    }
  }
  return all;
}

TEST(Hierarchical, HasTheSharesOfHorovod) {
  using collective::ring;
  using horovod = collective::hierarchical<ring, ring, collective::crossing::all_ranks_if_even>;
  const std::vector<std::vector<int>> placed{{0},
                                             {0, 0},
                                             {0, 1},
                                             {0, 0, 0},
                                             {0, 0, 1},
                                             {1, 0, 1, 0},
                                             {0, 0, 0, 1},
                                             {0, 0, 0, 1, 1},
                                             {0, 1, 2, 1, 0},
                                             {0, 0, 0, 0, 0},
                                             {0, 1, 2, 2, 1, 0},
                                             {0, 0, 0, 0, 1, 1, 1, 1},
                                             {0, 0, 1, 1, 2, 2, 3, 3},
                                             {0, 0, 0, 1, 1, 1, 2, 2}};
  for (const std::vector<int>& hosts : placed) {
    for (const std::size_t n : {0U, 1U, 2U, 3U, 7U, 60U, 1001U}) {
      const bytes expected = as_horovod_sends(hosts, n);
      EXPECT_EQ(sent_between(horovod(), hosts, n), expected) << hosts.size() << ", " << n;
      EXPECT_EQ(sent_between(collective::torus(), hosts, n), expected) << hosts.size() << ", " << n;
      if (n > 0 && hosts == std::vector<int>{0, 0, 0, 0, 1, 1, 1, 1}) {  // full rings
        const auto cost = *horovod::alone(8, 4, n);
        std::size_t sent = 0;
        for (const std::size_t each : expected[0]) {
          sent += each;
        }
        EXPECT_NEAR(cost.sent * static_cast<double>(n), static_cast<double>(sent) / 4, 1e-9) << n;
        EXPECT_EQ(cost.payloads, bound::all_reduce(1, 2));
      }
    }
  }
  // On uneven hosts there is one share, while all_ranks has as many as the smallest host has ranks.
  EXPECT_NE(sent_between(collective::hierarchical<>(), {0, 0, 0, 1, 1}, 60),
            as_horovod_sends({0, 0, 0, 1, 1}, 60));
}

/// The second ring rotates each host's ranks: 0 1 | 2 3 and 1 0 | 3 2, as TensorFlow does.
TEST(Rings, TurnTheRanksOfEachHostRound) {
  constexpr std::size_t n = 80;
  constexpr std::size_t along = 2 * 3 * n / 2;  // 2(p-1)/p of half of the bytes
  const bytes both{
      {0, along, 0, along}, {along, 0, along, 0}, {0, along, 0, along}, {along, 0, along, 0}};
  EXPECT_EQ(sent_between(collective::rings({.shards = 2}), {0, 0, 1, 1}, n), both);
  EXPECT_EQ(sent_between(collective::rings({.shards = 99}), {0, 0, 1, 1}, n), both);
  for (const std::vector<int>& hosts : {std::vector<int>{0, 0, 1, 1}, {0, 1, 2, 3, 4}}) {
    EXPECT_EQ(sent_between(collective::rings({.shards = hosts.size() == 4 ? 1U : 2U}), hosts, n),
              sent_between(collective::ring(), hosts, n));
  }
  EXPECT_THROW(collective::rings({.shards = 0}), usage_error);
}

/// Which rank adds up which chunk's shards is what tf_cnn_benchmarks' group_device_names answers
/// for these hosts: of GPUs 0 2 1 3 in twos {0, 1} and {2, 3}, in threes {0, 1, 0} and {2, 3, 2}.
/// That Python function, as at commit 039fa95, was run by itself for these on 25 November 2026; the
/// reduction that it is part of was not.
TEST(Shuffle, GathersWhereItsTurnIs) {
  using by_hosts = collective::shuffle<collective::gather_at::hosts>;
  using by_ranks = collective::shuffle<collective::gather_at::ranks>;
  const std::vector<int> two{0, 0, 1, 1};
  constexpr std::size_t n = 60;
  constexpr std::size_t whole = n * sizeof(float);
  const auto gathered = [&](std::initializer_list<std::size_t> owners) {
    bytes all(4, std::vector<std::size_t>(4));
    for (const std::size_t owner : owners) {
      for (std::size_t peer = 0; peer < 4; ++peer) {
        all[peer][owner] += peer == owner ? 0 : whole / owners.size();
        all[owner][peer] += peer == owner ? 0 : whole / owners.size();
      }
    }
    return all;
  };
  for (const std::uint64_t turn : {0U, 2U}) {
    EXPECT_EQ(sent_between(by_hosts(), two, n, turn), gathered({0}));
    EXPECT_EQ(sent_between(by_hosts(), two, n, turn + 1), gathered({2}));
    EXPECT_EQ(sent_between(by_hosts({.shards = 2}), two, n, turn), gathered({0, 2}));
    EXPECT_EQ(sent_between(by_hosts({.shards = 9}), two, n, turn), gathered({0, 2}));
    EXPECT_EQ(sent_between(by_ranks({.shards = 2}), two, n, turn), gathered({0, 1}));
    EXPECT_EQ(sent_between(by_ranks({.shards = 2}), two, n, turn + 1), gathered({2, 3}));
    EXPECT_EQ(sent_between(by_ranks({.shards = 3}), two, n, turn), gathered({0, 1, 0}));
    EXPECT_EQ(sent_between(by_ranks({.shards = 3}), two, n, turn + 1), gathered({2, 3, 2}));
  }
  EXPECT_THROW(by_ranks({.shards = 0}), usage_error);
}

/// What remains is the other half of a ring: a rank sends every part but its own, or every part but
/// its successor's.
TEST(Excluding, LeavesOneHalfOfTheRing) {
  using collective::phase;
  using scatter = collective::excluding<phase::all_gather>;
  using gather = collective::excluding<phase::reduce_scatter>;
  for (const std::size_t ranks : {1U, 2U, 3U, 4U, 5U}) {
    for (const std::size_t n : {0U, 1U, 7U, 1001U}) {
      const auto all_but_part = [&](std::size_t of_next) {
        bytes all(ranks, std::vector<std::size_t>(ranks));
        for (std::size_t rank = 0; rank < ranks && ranks > 1; ++rank) {
          const std::size_t part = (rank + of_next) % ranks;
          all[rank][(rank + 1) % ranks] = 4 * (n - n / ranks - (part < n % ranks ? 1 : 0));
        }
        return all;
      };
      const std::vector<int> hosts(ranks);
      EXPECT_EQ(sent_between(scatter(), hosts, n), all_but_part(0)) << ranks << ", " << n;
      EXPECT_EQ(sent_between(gather(), hosts, n), all_but_part(1)) << ranks << ", " << n;
    }
    const int p = static_cast<int>(ranks);
    EXPECT_EQ(collective::canonical::alone(p, 1, 1)->latencies, p == 1 ? 0 : 2);
    EXPECT_EQ(2 * scatter::alone(p).latencies, collective::ring::alone(p).latencies);
    EXPECT_EQ(2 * gather::alone(p).payloads, collective::ring::alone(p).payloads);
  }
}

/// As in tensorpack, with variable 5 on GPUs 5 and 1.
TEST(HierarchicalCopy, CrossesBetweenTheHalvesOnce) {
  constexpr std::size_t whole = 10 * sizeof(float);
  for (const std::uint64_t turn : {5U, 13U}) {
    bytes eight(8, std::vector<std::size_t>(8));
    to_and_fro(eight, {4, 6, 7, 1}, 5, whole);
    to_and_fro(eight, {0, 2, 3}, 1, whole);
    EXPECT_EQ(sent_between(collective::hierarchical_copy(), std::vector<int>(8), 10, turn), eight);
  }
  bytes five(5, std::vector<std::size_t>(5));
  to_and_fro(five, {3, 1}, 4, whole);
  to_and_fro(five, {0, 2}, 1, whole);
  EXPECT_EQ(sent_between(collective::hierarchical_copy(), {0, 0, 0, 0, 0}, 10, 4), five);
}

enum class choice { small, large };
constexpr std::array<std::string_view, 2> names(choice) { return {"small", "large"}; }
using chosen = collective::by_size<choice, collective::canonical, collective::rings>;

TEST(BySize, TakesTheFirstRangeThatHoldsAChunk) {
  const chosen two({.ranges = {{{choice::large, 3, 100}, {choice::small, 1, 1000}}}});
  chosen::options every;
  static_assert(std::is_trivially_copyable_v<chosen::options>);
  for (std::size_t i = 0; i < every.ranges.size(); ++i) {
    every.ranges[i] = {i % 2 == 0 ? choice::small : choice::large, 1, i + 1};
  }
  const chosen all(every);  // the last range takes the rest, too
  EXPECT_EQ(chosen().way_of(0), "small");
  EXPECT_EQ(chosen().way_of(1'000'000), "small");
  EXPECT_EQ(two.way_of(0), "large#3");
  EXPECT_EQ(two.way_of(100), "large#3");
  EXPECT_EQ(two.way_of(101), "small");
  EXPECT_EQ(all.way_of(15), "small");
  EXPECT_EQ(all.way_of(16), "large");
  EXPECT_EQ(all.way_of(17), "large");
  // Each size costs what its collective costs, and scratch is the most that any size up to it
  // needs.
  const std::vector<int> hosts{0, 0, 1, 1};
  EXPECT_EQ(sent_between(two, hosts, 100),
            sent_between(collective::rings({.shards = 3}), hosts, 100));
  EXPECT_EQ(sent_between(two, hosts, 101), sent_between(collective::canonical(), hosts, 101));
  EXPECT_EQ(two.scratch_bytes(100, 4, 3), 0U);
  EXPECT_EQ(two.scratch_bytes(200, 4, 3), collective::canonical().scratch_bytes(200, 4, 3));
  EXPECT_EQ(all.scratch_bytes(9, 4, 3), collective::canonical().scratch_bytes(9, 4, 3));
  const chosen small_first({.ranges = {{{choice::small, 1, 30}, {choice::large, 1, 0}}}});
  EXPECT_EQ(small_first.scratch_bytes(9000, 4, 3), collective::canonical().scratch_bytes(30, 4, 3));
}

/// Flags and help show only the ranges in use.
TEST(BySize, DescribesARangeAfterEachLimit) {
  const auto described = [](chosen::options its) {
    std::string names;
    chosen::options::describe(its, [&](std::string_view name, const auto&, std::string_view) {
      names.append(names.empty() ? "" : " ").append(name);
    });
    return names;
  };
  EXPECT_EQ(described({}), "algorithm shards up_to");
  EXPECT_EQ(described({.ranges = {{{choice::large, 3, 100}}}}),
            "algorithm shards up_to algorithm2 shards2 up_to2");
}

TEST(BySize, RefusesWhatNoChunkCanTake) {
  try {
    chosen({.ranges = {{{choice::large, 1, 100}, {choice::small, 1, 100}, {choice::large, 1, 0}}}});
    FAIL();
  } catch (const usage_error& refused) {
    EXPECT_STREQ(refused.what(),
                 "collective::by_size: small up to 100 elements comes after a limit of 100 and "
                 "would get no chunk. Fix: use ascending limits");
  }
  EXPECT_THROW(chosen({.ranges = {{{choice::large, 0, 0}}}}), usage_error);
  try {
    chosen({.ranges = {{{choice::large, 1, 10}, {choice::small, 1, 0}, {choice::large, 1, 0}}}});
    FAIL();
  } catch (const usage_error& refused) {
    EXPECT_STREQ(refused.what(),
                 "collective::by_size: range 3 comes after range 2, which has no limit, and would "
                 "get no chunk. Fix: set a limit for that range");
  }
}

TEST(BySize, AMeasuredTableSaysWhoWasFastest) {
  const auto made = chosen::fastest({{4000, choice::small, 1, 9e-3},
                                     {4000, choice::large, 2, 5e-3},
                                     {10, choice::small, 1, 1e-6},
                                     {10, choice::large, 2, 2e-6},
                                     {500, choice::large, 1, 2e-5},
                                     {500, choice::small, 1, 1e-5},
                                     {90'000, choice::large, 2, 1e-2}});
  const std::array<chosen::range, 16> expected{{{choice::small, 1, 500}, {choice::large, 2, 0}}};
  EXPECT_EQ(made.ranges, expected);
  std::vector<chosen::measured> restless;
  for (std::size_t size = 1; size <= 17; ++size) {
    restless.push_back({size, size % 2 == 0 ? choice::small : choice::large, 1, 1});
  }
  EXPECT_THROW(chosen::fastest(restless), usage_error);
  EXPECT_THROW(chosen::fastest({}), usage_error);
  // A chunk without elements is not sent, so its row is ignored; 0 stays the sign of no limit.
  const auto from_nothing =
      chosen::fastest({{0, choice::large, 1, 1e-7}, {10, choice::small, 1, 1e-6}});
  EXPECT_EQ(from_nothing.ranges, (std::array<chosen::range, 16>{{{choice::small, 1, 0}}}));
}

using collective::topology;

/// The pairs of graphs of a topology among ranks on hosts. A graph is written as the parent of each
/// rank, with the root as its own parent: first for the sums on their way to the root and, unless
/// it is the same graph, then for their total on its way back.
struct listed_graphs {
  topology how;
  std::string pairs;
};
struct listed_world {
  std::vector<int> hosts;
  std::vector<listed_graphs> topologies;
};

/// The graphs are those that KungFu's own generators made at commit b1e1768; `ring_star` has those
/// of its local and its cross graphs.
const std::vector<listed_world>& listed_worlds() {
  static const std::vector<listed_world> all{
      {{0, 0, 0},
       {
           {topology::star, "000"},
           {topology::multi_star, "000"},
           {topology::ring, "020/001 110/211 122/202"},
           {topology::clique, "000 111 222"},
           {topology::tree, "000"},
           {topology::binary_tree, "000"},
           {topology::binary_tree_star, "000"},
           {topology::multi_binary_tree_star, "000"},
           {topology::ring_star, "000"},
           {topology::automatic, "000"},
       }},
      {{0, 0, 1, 1, 2},
       {
           {topology::star, "00000"},
           {topology::multi_star, "00020 20222 40424"},
           {topology::ring, "02340/00123 11340/41123 12240/40223 12330/40133 12344/40124"},
           {topology::clique, "00000 11111 22222 33333 44444"},
           {topology::tree, "00020"},
           {topology::binary_tree, "00011"},
           {topology::binary_tree_star, "00020"},
           {topology::multi_binary_tree_star, "00020 20222 40424"},
           {topology::ring_star, "00420/00022 20220/40222 20424/40024"},
           {topology::automatic, "00020"},
       }},
      {{2, 2, 0, 0, 0, 1, 1, 1},
       {
           {topology::star, "00000000"},
           {topology::multi_star, "00022055 20222255 50522555"},
           {topology::ring,
            "02345670/00123456 11345670/71123456 12245670/70223456 12335670/70133456 "
            "12344670/70124456 12345570/70123556 12345660/70123466 12345677/70123457"},
           {topology::clique,
            "00000000 11111111 22222222 33333333 44444444 55555555 66666666 77777777"},
           {topology::tree, "00022055"},
           {topology::binary_tree, "00011223"},
           {topology::binary_tree_star, "00022055"},
           {topology::multi_binary_tree_star, "00022055 20222255 50522555"},
           {topology::ring_star, "00522055/00022255 20222055/50222255 20522555/50022555"},
           {topology::automatic, "00022055"},
       }},
      {{0, 1, 0, 1, 1, 0},
       {
           {topology::star, "000000"},
           {topology::multi_star, "000110 110110"},
           {topology::ring,
            "023450/001234 113450/511234 122450/502234 123350/501334 123440/501244 123455/501235"},
           {topology::clique, "000000 111111 222222 333333 444444 555555"},
           {topology::tree, "000110"},
           {topology::binary_tree, "000112"},
           {topology::binary_tree_star, "000110"},
           {topology::multi_binary_tree_star, "000110 110110"},
           {topology::ring_star, "000110 110110"},
           {topology::automatic, "000110"},
       }},
      {{0, 1, 2, 3, 4, 5, 6},
       {
           {topology::star, "0000000"},
           {topology::multi_star, "0000000 1111111 2222222 3333333 4444444 5555555 6666666"},
           {topology::ring,
            "0234560/0012345 1134560/6112345 1224560/6022345 1233560/6013345 1234460/6012445 "
            "1234550/6012355 1234566/6012346"},
           {topology::clique, "0000000 1111111 2222222 3333333 4444444 5555555 6666666"},
           {topology::tree, "0000000"},
           {topology::binary_tree, "0001122"},
           {topology::binary_tree_star, "0001122"},
           {topology::multi_binary_tree_star,
            "0001122 3111223 4422233 4553334 5566444 5660055 6600116"},
           {topology::ring_star,
            "0234560/0012345 1134560/6112345 1224560/6022345 1233560/6013345 1234460/6012445 "
            "1234550/6012355 1234566/6012346"},
           {topology::automatic, "0001122"},
       }},
  };
  return all;
}

std::vector<std::string> split(const std::string& words, char between) {
  std::istringstream in(words);
  std::vector<std::string> all;
  for (std::string each; std::getline(in, each, between);) {
    all.push_back(each);
  }
  return all;
}

TEST(Graphs, AreThoseOfKungFu) {
  for (const auto& [hosts, topologies] : listed_worlds()) {
    const int ranks = static_cast<int>(hosts.size());
    ASSERT_EQ(topologies.size(), names(topology()).size());
    for (const auto& [how, listed] : topologies) {
      const collective::graphs all(how, ranks, [&of = hosts](int rank) { return of[at(rank)]; });
      std::string made;
      for (int pair = 0; pair < all.pairs(); ++pair) {
        std::string up;
        std::string down;
        for (int rank = 0; rank < ranks; ++rank) {
          up += std::to_string(all.reduce_parent(pair, rank));
          down += std::to_string(all.broadcast_parent(pair, rank));
        }
        made += (pair == 0 ? "" : " ") + up + (up == down ? "" : "/" + down);
      }
      EXPECT_EQ(made, listed) << names(how)[static_cast<std::size_t>(how)];
    }
  }
}

/// A rank sends its sum to its parent, unless it is the root, and the total to each child.
TEST(ByGraph, SendsAlongTheEdgesAlone) {
  constexpr std::size_t n = 1001;
  for (const auto& [hosts, topologies] : listed_worlds()) {
    const std::size_t ranks = hosts.size();
    for (const auto& [how, listed] : topologies) {
      const auto pairs = split(listed, ' ');
      for (std::size_t pair = 0; pair < pairs.size(); ++pair) {
        const collective::by_graph along({.topology = how});
        const auto graphs = split(pairs[pair], '/');
        bytes expected(ranks, std::vector<std::size_t>(ranks));
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          const auto up = static_cast<std::size_t>(graphs.front()[rank] - '0');
          const auto down = static_cast<std::size_t>(graphs.back()[rank] - '0');
          expected[rank][up] += up == rank ? 0 : n * sizeof(float);
          expected[down][rank] += down == rank ? 0 : n * sizeof(float);
        }
        EXPECT_EQ(sent_between(along, hosts, n, pair + 7 * pairs.size()), expected)
            << names(how)[static_cast<std::size_t>(how)] << ' ' << pair;
      }
    }
  }
}

/// KungFu's hash of a name is the sum of the squares of its characters. How these values were first
/// made is not recorded. On 25 November 2026 the sums were added up again, independently of this
/// library. KungFu itself was not run.
TEST(ByGraph, HashesAsKungFu) {
  const collective::by_graph by_name;
  EXPECT_EQ(by_name.route_of({"tensor0", 0, 0, 150'000}), 168'760U);  // part::tensor0[0:150000]
  EXPECT_EQ(by_name.route_of({"tensor0", 1, 150'000, 300'000}), 180'577U);
  EXPECT_EQ(by_name.route_of({"tensor4", 1, 260'417, 520'834}), 184'334U);
  EXPECT_EQ(by_name.route_of({"conv1/kernel", 0, 0, 1}), 201'499U);
  EXPECT_EQ(by_name.route_of({"layer3.weight", 4, 1'048'576, 1'310'720}), 246'154U);
  const collective::by_graph by_index({.hash = collective::hash::index});
  EXPECT_EQ(by_index.route_of({"layer3.weight", 4, 1'048'576, 1'310'720}), 4U);
}

}  // namespace
}  // namespace tutti::test
