// gTopK's tree between threads applies and keeps what plain loops over integers do, and what the
// original's own function made of the same gradients.
#include "tutti/architecture/sparse_tree.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <mutex>
#include <type_traits>
#include <vector>

#include "support/lost.hpp"
#include "support/sparse_tree_oracle.hpp"
#include "support/training.hpp"
#include "tutti/architecture/selecting_all_gather.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/fusion/all.hpp"
#include "tutti/fusion/when_ready.hpp"
#include "tutti/strategies/dgc.hpp"
#include "tutti/strategies/gtopk_sgd.hpp"

namespace tutti::test {
namespace {

using architecture::give_back;
using integers = std::vector<std::int64_t>;
using history = selections<std::int64_t>;
using pairs = selected<std::int64_t>;

/// Returns 16 pseudo-random bits, so that all sums here are exact floats and hardly any are equal.
std::int64_t mixed(std::size_t rank, std::size_t step, std::size_t i) {
  auto x = static_cast<std::uint32_t>(i * 2654435761u + rank * 40503u + step * 2246822519u + 1);
  x = (x ^ x >> 15) * 2246822519u;
  x = (x ^ x >> 13) * 3266489917u;
  return static_cast<std::int64_t>((x ^ x >> 16) & 0xffff) - 32768;
}
/// Returns mostly zeros, and equal magnitudes of both signs, so that sums cancel and selections
/// hold zeros.
std::int64_t sparse(std::size_t rank, std::size_t step, std::size_t i) {
  return i % 3 == 0 ? 0 : mixed(rank, step, i) % 3;
}

/// Trains two tensors, so that fusion has an effect.
template <class Fusion, class Architecture = architecture::sparse_tree, class Gradient>
history trained(give_back rule, std::size_t ranks, std::size_t n, std::size_t k, std::size_t steps,
                Gradient gradient) {
  using strategy = compose<Fusion, compression::error_feedback<compression::top_k>, Architecture>;
  engine_options<strategy> options{.compression = {.k = k}};
  if constexpr (std::is_same_v<Architecture, architecture::sparse_tree>) {
    options.architecture.give_back = rule;
  }
  options.run.deadline = 20;
  history all{{}, std::vector<integers>(ranks)};
  std::mutex mutex;
  transport::run_ranks(static_cast<int>(ranks), [&](transport::in_process& world) {
    arena memory(std::vector<arena::declaration>{{"one", n / 2}, {"two", n - n / 2}});
    auto engine = make_engine<strategy>(world, memory.tensors(), optimizer::none{}, options);
    const auto rank = static_cast<std::size_t>(world.rank());
    std::vector<integers> sums(steps, integers(n));
    for (std::size_t step = 0; step < steps; ++step) {
      for (std::size_t i = 0; i < n; ++i) {
        memory.gradients()[i] = static_cast<float>(gradient(rank, step, i));
      }
      engine.ready(tensor_id(1));
      engine.ready(tensor_id(0));
      engine.wait();
      for (std::size_t i = 0; i < n; ++i) {
        const float mean = memory.gradients()[i];
        const auto sum = std::llround(static_cast<double>(mean) * static_cast<double>(ranks));
        EXPECT_EQ(mean, static_cast<float>(sum) * (1.0f / static_cast<float>(ranks)));
        sums[step][i] = sum;
      }
    }
    const auto residual = engine.memories()[0];
    const std::scoped_lock lock(mutex);
    all.residuals[rank].assign(residual.begin(), residual.end());
    all.sums = all.sums.empty() ? sums : all.sums;
    EXPECT_EQ(all.sums, sums) << "rank " << rank << " of " << ranks;
  });
  return all;
}

TEST(SparseTree, IsItsLoopsOnAnyNumberOfRanks) {
  for (const give_back rule : {give_back::exact, give_back::compatible}) {
    for (const std::size_t ranks : {1u, 2u, 3u, 4u, 5u, 8u}) {
      for (const std::size_t n : {1u, 7u, 40u, 1001u}) {
        const std::size_t k = std::max<std::size_t>(n / 10, 1);
        EXPECT_EQ(trained<fusion::all>(rule, ranks, n, k, 3, mixed),
                  selected_by_a_tree(rule, ranks, n, k, 3, mixed))
            << names(rule)[static_cast<std::size_t>(rule)] << ", " << ranks << " ranks, " << n;
      }
    }
  }
}

/// Ties go to the lower index, sums that cancel are zeros, and where fewer than k elements are not
/// zero none is added twice.
TEST(SparseTree, IsItsLoopsOnTiesAndZeros) {
  for (const give_back rule : {give_back::exact, give_back::compatible}) {
    for (const std::size_t ranks : {2u, 5u}) {
      for (const std::size_t k : {1u, 20u, 33u}) {
        EXPECT_EQ(trained<fusion::all>(rule, ranks, 60, k, 6, sparse),
                  selected_by_a_tree(rule, ranks, 60, k, 6, sparse))
            << ranks << " ranks, " << k;
      }
      // Every element is selected. A sum that cancels may then count as left out, which loses
      // nothing.
      const history all = trained<fusion::all>(rule, ranks, 60, 60, 6, sparse);
      EXPECT_EQ(all.sums, selected_by_a_tree(rule, ranks, 60, 60, 6, sparse).sums)
          << ranks << " ranks";
      EXPECT_EQ(lost(all, 60, sparse), integers(60)) << ranks << " ranks";
    }
  }
}

TEST(SparseTree, LosesNothingIfExact) {
  for (const std::size_t ranks : {1u, 2u, 3u, 4u, 5u, 8u}) {
    const history all = trained<fusion::when_ready>(give_back::exact, ranks, 96, 5, 12, mixed);
    EXPECT_EQ(lost(all, 96, mixed), integers(96)) << ranks << " ranks";
  }
}

/// The vectors are from gtopk_sparse_allreduce of hclhkbu/gtopkssgd's allreducer.py, run by itself
/// on threads under numpy 2, with its compressor's residuals in numpy, n = 40, ratio = 0.1.
TEST(SparseTree, IsTheOriginalsWhereCompatible) {
  struct vector {
    std::size_t ranks;
    std::vector<pairs> winners;
    std::uint64_t residuals;  ///< a hash of all ranks' residuals in order
  };
  const std::vector<vector> vectors{{1,
                                     {{{1, -31205}, {9, -30706}, {12, -30958}, {24, -32168}},
                                      {{0, -45806}, {18, -46418}, {31, 53697}, {33, -43201}},
                                      {{5, 66591}, {13, -59819}, {26, 52452}, {27, 63421}}},
                                     0x3fe0d46dd01967dd},
                                    {2,
                                     {{{1, -31205}, {20, -32706}, {24, -32168}, {28, 32450}},
                                      {{5, 47412}, {27, -56831}, {31, 53697}, {39, 49557}},
                                      {{0, -60795}, {5, 66591}, {11, -75988}, {27, 63421}}},
                                     0xd43bada282344fcf},
                                    {4,
                                     {{{19, -32661}, {20, -32706}, {25, -32752}, {28, 32450}},
                                      {{4, 110938}, {8, -59666}, {9, -60594}, {26, 61127}},
                                      {{11, -75988}, {31, 76022}, {34, 75900}, {39, 71603}}},
                                     0xfd39d8cce4b72fea},
                                    {8,
                                     {{{20, -32706}, {23, 32271}, {25, -32752}, {28, 32450}},
                                      {{4, 110938}, {32, -62424}, {37, 62507}, {39, 112247}},
                                      {{26, -80626}, {29, -150880}, {31, 76022}, {35, -81924}}},
                                     0x3ef043cb88606b28}};
  for (const vector& each : vectors) {
    const history all = trained<fusion::all>(give_back::compatible, each.ranks, 40, 4, 3, mixed);
    for (std::size_t step = 0; step < each.winners.size(); ++step) {
      integers expected(40);
      for (const auto& [i, value] : each.winners[step]) {
        expected[i] = value;
      }
      EXPECT_EQ(all.sums[step], expected) << each.ranks << " ranks, step " << step;
    }
    std::uint64_t hash = 0;
    for (const integers& residual : all.residuals) {
      for (const std::int64_t value : residual) {
        hash = hash * 1000003 + static_cast<std::uint64_t>(value);
      }
    }
    EXPECT_EQ(hash, each.residuals) << each.ranks << " ranks";
    integers stated(40);
    if (each.ranks == 8) {
      stated[20] = 31090;
      stated[28] = 31230;
      stated[31] = -49078;
      stated[35] = 49277;
      stated[37] = 56526;
      stated[39] = 49557;
    }
    EXPECT_EQ(lost(all, 40, mixed), stated) << each.ranks << " ranks";
  }
}

/// With the densities of the first epochs the plan is made anew between steps, and no residual is
/// lost.
TEST(SparseTree, LosesNothingWhileItWarmsUp) {
  using strategy = strategies::gTopKSGD;
  constexpr std::size_t n = 1000;
  history all{{}, std::vector<integers>(3)};
  std::mutex mutex;
  transport::run_ranks(3, [&](transport::in_process& world) {
    arena memory(std::vector<arena::declaration>{{"one", n / 2}, {"two", n / 2}});
    engine_options<strategy> options{.architecture = {.give_back = give_back::exact}};
    options.run.deadline = 20;
    const auto rank = static_cast<std::size_t>(world.rank());
    const auto density = [](std::size_t epoch) { return strategies::DGC::warm_up(epoch, 0.002); };
    options.compression.density = density(0);
    auto engine = make_engine<strategy>(world, memory.tensors(), optimizer::none{}, options);
    std::vector<integers> sums;
    for (std::size_t step = 0; step < 10; ++step) {
      if (step % 2 == 0 && step > 0) {
        options.compression.density = density(step / 2);
        engine.replan(options);
      }
      for (std::size_t i = 0; i < n; ++i) {
        memory.gradients()[i] = static_cast<float>(mixed(rank, step, i));
      }
      engine.ready(tensor_id(1));
      engine.ready(tensor_id(0));
      engine.wait();
      sums.emplace_back(n);
      for (std::size_t i = 0; i < n; ++i) {
        sums.back()[i] = std::llround(static_cast<double>(memory.gradients()[i]) * 3);
      }
      const auto sent = std::ranges::count_if(sums.back(), [](auto each) { return each != 0; });
      EXPECT_EQ(static_cast<double>(sent), std::floor(n * density(step / 2))) << step;
    }
    const auto residual = engine.memories()[0];
    const std::scoped_lock lock(mutex);
    all.residuals[rank].assign(residual.begin(), residual.end());
    all.sums = sums;
  });
  EXPECT_EQ(lost(all, n, mixed), integers(n));
}

/// Counts, round by round, the payloads that are sent up the tree into the root's host.
TEST(SparseTree, IsBoundByTheHostOfItsRoot) {
  for (int ranks = 1; ranks <= 17; ++ranks) {
    for (const int per_host : {1, 2, 3, 4}) {
      std::vector<double> received(static_cast<std::size_t>(ranks));
      for (int distance = 1; distance < ranks; distance *= 2) {
        for (int rank = 0; rank + distance < ranks; rank += 2 * distance) {
          if (rank / per_host != (rank + distance) / per_host) {
            received[static_cast<std::size_t>(rank / per_host)] += 7;
          }
        }
      }
      EXPECT_EQ(
          architecture::sparse_tree::busiest_nic(7, 0, {.workers = ranks, .per_host = per_host}),
          received[0])
          << ranks << " ranks, " << per_host << " a host";
    }
  }
}

// ---- selections of all, and of their sum again

history selected_twice(std::size_t ranks, std::size_t n, std::size_t k, std::size_t steps) {
  history all{{}, std::vector<integers>(ranks, integers(n))};
  for (std::size_t step = 0; step < steps; ++step) {
    std::vector<pairs> own(ranks);
    pairs sum;
    for (std::size_t i = 0; i < n; ++i) {
      sum[i] = 0;
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      pairs whole;
      for (std::size_t i = 0; i < n; ++i) {
        whole[i] = all.residuals[rank][i] += mixed(rank, step, i);
      }
      own[rank] = largest(whole, k);
      for (const auto& [i, value] : own[rank]) {
        sum[i] += value;
      }
    }
    const pairs kept = largest(sum, k);
    all.sums.emplace_back(n);
    for (const auto& [i, value] : kept) {
      all.sums.back()[i] = value;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        all.residuals[rank][i] = own[rank].contains(i) ? 0 : all.residuals[rank][i];
      }
    }
  }
  return all;
}

TEST(SelectingAllGather, IsItsLoopsAndLosesNothing) {
  using architecture::selecting_all_gather;
  for (const std::size_t ranks : {1u, 2u, 3u, 5u}) {
    for (const std::size_t n : {1u, 7u, 1001u}) {
      const std::size_t k = std::max<std::size_t>(n / 10, 1);
      const history all = trained<fusion::all, selecting_all_gather>({}, ranks, n, k, 4, mixed);
      EXPECT_EQ(all, selected_twice(ranks, n, k, 4)) << ranks << " ranks, " << n;
      EXPECT_EQ(lost(all, n, mixed), integers(n)) << ranks << " ranks, " << n;
    }
  }
}

}  // namespace
}  // namespace tutti::test
