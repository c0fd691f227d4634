// Compression through whole architectures between threads: nothing is lost, and what is sent is
// what plain loops around the codec state.
#include <cmath>
#include <cstddef>
#include <gtest/gtest.h>
#include <mutex>
#include <numeric>
#include <vector>

#include "support/strategy_laws.hpp"
#include "support/training.hpp"
#include "support/training_worlds.hpp"
#include "tutti/architecture/all_gather.hpp"
#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/compression/block_int8.hpp"
#include "tutti/compression/block_sign.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/scaled_sign.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/fusion/all.hpp"
#include "tutti/partition/into.hpp"

namespace tutti::test::compressed {
namespace {

constexpr std::size_t elements = 96;

/// Returns a gradient of few bits, so that every sum below is exact.
float dyadic(int worker, int step, std::size_t i) {
  return static_cast<float>((worker * 31 + step * 17 + static_cast<int>(i) * 13) % 64 - 32) / 16.0f;
}

struct ledger {
  std::vector<double> contributed = std::vector<double>(elements);
  std::vector<double> applied = std::vector<double>(elements);
  std::vector<double> at_workers = std::vector<double>(elements);
  std::vector<double> at_owners = std::vector<double>(elements);
};

/// Adds up, over `steps` steps of `workers` workers, the gradients contributed, the updates
/// applied, and the residuals that remain.
template <class Strategy>
ledger account(int workers, int steps, engine_options<Strategy> options = {}) {
  ledger all;
  std::mutex mutex;
  transport::run_ranks(workers, [&](transport::in_process& world) {
    arena memory(std::vector<arena::declaration>{{"one", 60}, {"two", 36}});
    auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer::none{}, options);
    std::vector<double> given(elements);
    std::vector<double> taken(elements);
    for (int step = 0; step < steps; ++step) {
      for (std::size_t i = 0; i < elements; ++i) {
        memory.gradients()[i] = dyadic(world.rank(), step, i);
        given[i] += static_cast<double>(memory.gradients()[i]);
      }
      engine.ready(tensor_id(1));
      engine.ready(tensor_id(0));
      engine.wait();
      for (std::size_t i = 0; i < elements; ++i) {
        taken[i] += static_cast<double>(memory.gradients()[i]) * workers;
      }
    }
    const auto memories = engine.memories();
    const std::scoped_lock lock(mutex);
    for (std::size_t i = 0; i < elements; ++i) {
      all.contributed[i] += given[i];
      all.at_workers[i] += memories[0].empty() ? 0 : static_cast<double>(memories[0][i]);
      all.at_owners[i] += memories[1].empty() ? 0 : static_cast<double>(memories[1][i]) * workers;
      if (world.rank() == 0) {
        all.applied[i] = taken[i];
      }
    }
  });
  return all;
}

TEST(Conservation, SelectionLosesNothing) {
  using strategy = compose<compression::error_feedback<compression::top_k>, fusion::all,
                           architecture::all_gather>;
  for (const int workers : {1, 2, 4}) {
    const ledger all = account<strategy>(workers, 25, {.compression = {.density = 0.05}});
    for (std::size_t i = 0; i < elements; ++i) {
      EXPECT_EQ(all.contributed[i], all.applied[i] + all.at_workers[i]) << i;
    }
    EXPECT_NE(std::accumulate(all.at_workers.begin(), all.at_workers.end(), 0.0), 0.0);
  }
}

TEST(Conservation, SelectionLosesNothingAtEitherEnd) {
  using strategy = compose<compression::error_feedback<compression::top_k>, fusion::all,
                           architecture::reduce_scatter_all_gather>;
  for (const int workers : {1, 2, 4}) {
    const ledger all = account<strategy>(workers, 25, {.compression = {.density = 0.05}});
    for (std::size_t i = 0; i < elements; ++i) {
      EXPECT_EQ(all.contributed[i], all.applied[i] + all.at_workers[i] + all.at_owners[i]) << i;
    }
  }
}

TEST(Conservation, ScaledSignsLoseARounding) {
  using strategy = compose<compression::error_feedback<compression::scaled_sign>,
                           architecture::reduce_scatter_all_gather>;
  const int steps = 25;
  for (const int workers : {1, 3}) {
    const ledger all = account<strategy>(workers, steps);
    for (std::size_t i = 0; i < elements; ++i) {
      const double bound = steps * (workers + 2) * 8.0 * std::ldexp(1.0, -23);
      EXPECT_NEAR(all.contributed[i], all.applied[i] + all.at_workers[i] + all.at_owners[i], bound);
    }
  }
}

/// Chunks are no multiple of a block and are cut again among their owners.
template <class C>
void loses_a_rounding_in_pieces(options_of<C> blocks) {
  using strategy = compose<compression::error_feedback<C>, partition::into,
                           architecture::reduce_scatter_all_gather>;
  const int steps = 25;
  for (const int workers : {1, 3}) {
    const ledger all =
        account<strategy>(workers, steps, {.partition = {.elements = 41}, .compression = blocks});
    for (std::size_t i = 0; i < elements; ++i) {
      const double bound = steps * (workers + 2) * 8.0 * std::ldexp(1.0, -23);
      EXPECT_NEAR(all.contributed[i], all.applied[i] + all.at_workers[i] + all.at_owners[i], bound);
    }
    EXPECT_NE(std::accumulate(all.at_workers.begin(), all.at_workers.end(), 0.0), 0.0);
  }
}
/// A bucket is cut where blocks end, so that its blocks are those of the uncut bucket.
template <class C>
void is_cut_between_blocks(std::size_t block) {
  using whole = compose<architecture::all_gather, compression::error_feedback<C>, fusion::all>;
  using cut = compose<architecture::all_gather, compression::error_feedback<C>, fusion::all,
                      partition::into>;
  for (int workers = 1; workers <= 5; ++workers) {
    engine_options<whole> one_piece;
    one_piece.compression.block = block;
    const auto expected = train_on_threads<whole>(workers, 4, one_piece);
    for (const std::size_t piece : {1'000u, 4'111u}) {
      engine_options<cut> pieces;
      pieces.compression.block = block;
      pieces.partition.elements = piece;
      EXPECT_EQ(train_on_threads<cut>(workers, 4, pieces).parameters, expected.parameters);
    }
  }
  transport::run_ranks(1, [block](transport::in_process& world) {
    arena memory = model_of(0);
    engine_options<cut> pieces;
    pieces.partition.elements = 3 * block / 2;
    pieces.compression.block = block;
    const auto engine = make_engine<cut>(world, memory.tensors(), optimizer_of(), pieces);
    const auto& chunks = engine.planned().chunks;
    const std::size_t blocks = (total_elements() + block - 1) / block;
    // Pieces of 1.5 blocks end at 1.5, 3, 4.5, 6 ... blocks, which is rounded to 2, 3, 5, 6 ...
    ASSERT_EQ(chunks.size(), (2 * blocks + 1) / 3);
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      EXPECT_EQ(chunks[i].first_element, (3 * i + 1) / 2 * block);
    }
  });
}
TEST(Blocks, AreNotCut) {
  is_cut_between_blocks<compression::block_int8>(256);
  is_cut_between_blocks<compression::block_sign>(96);
}

TEST(Conservation, BlocksOfSignsLoseARounding) {
  loses_a_rounding_in_pieces<compression::block_sign>({.block = 32});
}
TEST(Conservation, BlocksOfCodesLoseARounding) {
  loses_a_rounding_in_pieces<compression::block_int8>({.block = 7});
}

}  // namespace

static_assert(strategies_in<lossy_strategies_on<on_threads>> == 7);
INSTANTIATE_TYPED_TEST_SUITE_P(LossyOnThreads, StrategyLaw, lossy_strategies_on<on_threads>);
static_assert(strategies_in<coded_strategies_on<on_threads>> == 8);
INSTANTIATE_TYPED_TEST_SUITE_P(CodedOnThreads, StrategyLaw, coded_strategies_on<on_threads>);

}  // namespace tutti::test::compressed
