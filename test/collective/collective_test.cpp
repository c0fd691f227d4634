// Every collective, at every size and number of ranks, against sums written down.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <span>
#include <vector>

#include "support/transports.hpp"
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/collective/addressable.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/collective/halving_doubling.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/collective/star.hpp"
#include "tutti/compression/fp16.hpp"
#include "tutti/compression/none.hpp"
#include "tutti/role/transport.hpp"
#include "tutti/transport/in_process.hpp"
#include "tutti/transport/simulated.hpp"

namespace tutti::test {
namespace {

struct add_floats {
  template <class Queue>
  void operator()(Queue& queue, std::byte* into, const std::byte* from, std::size_t bytes) const {
    queue.run([=] {
      auto* sum = reinterpret_cast<float*>(into);
      const auto* other = reinterpret_cast<const float*>(from);
      for (std::size_t i = 0; i < bytes / sizeof(float); ++i) {
        sum[i] += other[i];
      }
    });
  }
};

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

template <class Fold = add_floats>
reduction<Fold> over(std::vector<float>& data, std::vector<std::byte>& scratch, Fold fold = {}) {
  return {reinterpret_cast<std::byte*>(data.data()), data.size(), sizeof(float), fold, scratch};
}

/// The sum on each of `ranks` threads.
template <class Collective, class Fold = add_floats>
std::vector<std::vector<float>> summed_on_threads(int ranks, std::size_t n, Fold fold = {}) {
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
task sum_in_simulation(transport::simulated& world, std::vector<float>& data) {
  std::vector<std::byte> scratch(
      Collective{}.scratch_bytes(data.size(), sizeof(float), world.size()));
  const endpoint<transport::simulated> self(world, tag{channel::data, 1, 0});
  co_await Collective{}.all_reduce(self, over(data, scratch));
}

template <class Collective>
std::vector<std::vector<float>> summed_in_simulation(int ranks, std::size_t n) {
  std::vector<std::vector<float>> result;
  for (int rank = 0; rank < ranks; ++rank) {
    result.push_back(data_of(rank, n));
  }
  transport::run_simulated(ranks, transport::link{1e9, 1e-6}, [&](transport::simulated& world) {
    return sum_in_simulation<Collective>(world, result[static_cast<std::size_t>(world.rank())]);
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

template <class Collective>
void adds_on_threads() {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (const std::size_t n : sizes) {
      expect_sum<Collective>(summed_on_threads<Collective>(ranks, n), ranks, n);
    }
  }
}
template <class Collective>
void adds_in_simulation() {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (const std::size_t n : sizes) {
      expect_sum<Collective>(summed_in_simulation<Collective>(ranks, n), ranks, n);
    }
  }
}

TEST(Collective, Ring) {
  adds_on_threads<collective::ring>();
  adds_in_simulation<collective::ring>();
}
TEST(Collective, HalvingDoubling) {
  adds_on_threads<collective::halving_doubling>();
  adds_in_simulation<collective::halving_doubling>();
}
TEST(Collective, Star) {
  adds_on_threads<collective::star>();
  adds_in_simulation<collective::star>();
}
TEST(Collective, Canonical) {
  adds_on_threads<collective::canonical>();
  adds_in_simulation<collective::canonical>();
}
TEST(Collective, Addressable) { adds_on_threads<collective::addressable>(); }
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

/// Reduce-scatter leaves the sum of part r on rank r; all-gather spreads what is there.
template <class Collective>
void halves_by_themselves() {
  constexpr std::size_t n = 1003;
  for (int ranks = 1; ranks <= 5; ++ranks) {
    transport::run_ranks(ranks, [&](transport::in_process& world) {
      auto data = data_of(world.rank(), n);
      std::vector<std::byte> scratch(Collective{}.scratch_bytes(n, sizeof(float), ranks));
      const endpoint<transport::in_process> self(world, tag{channel::data, 2, 0});
      drive(world, Collective{}.reduce_scatter(self, over(data, scratch)));
      const auto rank = static_cast<std::size_t>(world.rank());
      const auto parts = static_cast<std::size_t>(ranks);
      for (std::size_t i = part_begin(n, parts, rank); i < part_begin(n, parts, rank + 1); ++i) {
        double sum = 0;
        for (int peer = 0; peer < ranks; ++peer) {
          sum += static_cast<double>(value(peer, i));
        }
        ASSERT_NEAR(static_cast<double>(data[i]), sum, 1e-6);
      }
      std::vector<float> marked(n, -1.0f);
      for (std::size_t i = part_begin(n, parts, rank); i < part_begin(n, parts, rank + 1); ++i) {
        marked[i] = static_cast<float>(i);
      }
      drive(world, Collective{}.all_gather(self, over(marked, scratch)));
      for (std::size_t i = 0; i < n; ++i) {
        ASSERT_EQ(marked[i], static_cast<float>(i));
      }
    });
  }
}
TEST(Collective, RingHalves) { halves_by_themselves<collective::ring>(); }
TEST(Collective, CanonicalHalves) { halves_by_themselves<collective::canonical>(); }

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

}  // namespace
}  // namespace tutti::test
