// Folds that are more than one addition; what every collective keeps is in
// collective_laws_test.cpp.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <span>
#include <vector>

#include "support/transports.hpp"
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/base/bounds.hpp"
#include "tutti/collective/addressable.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/collective/halving_doubling.hpp"
#include "tutti/collective/hierarchical.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/compression/fp16.hpp"
#include "tutti/compression/none.hpp"
#include "tutti/role/archetypes.hpp"
#include "tutti/role/transport.hpp"
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

/// The sum on each of `ranks` threads.
template <class Collective, class Fold>
std::vector<std::vector<float>> summed_on_threads(int ranks, std::size_t n, Fold fold) {
  std::vector<std::vector<float>> result(static_cast<std::size_t>(ranks));
  transport::run_ranks(ranks, [&](transport::in_process& world) {
    auto data = data_of(world.rank(), n);
    std::vector<std::byte> scratch(Collective{}.scratch_bytes(n, sizeof(float), ranks));
    const endpoint<transport::in_process> self(world, tag{channel::data, 1, 0});
    for (int again = 0; again < 2; ++again) {  // a lane is used step after step
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

/// Payloads of two bytes fold as well as floats: small integers are exact in half precision.
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

/// Bytes that the ranks of each host send to other hosts in one all-reduce of `n` phantom floats.
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
  const auto last = static_cast<std::size_t>(std::ranges::max(hosts));
  return {sent.begin(), sent.begin() + static_cast<std::ptrdiff_t>(last + 1)};
}

/// However many ranks share a host, and whether or not there are as many on each, its NIC sends
/// what it would with one rank.
TEST(Hierarchical, SendsOnceForEachHost) {
  constexpr std::size_t n = 2 * 3 * 3 * 100;  // the shares' parts are whole
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
}

}  // namespace
}  // namespace tutti::test
