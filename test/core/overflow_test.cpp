// What half precision cannot hold arrives as an infinity on every rank, and every rank counts it.
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "support/training.hpp"
#include "tutti/architecture/all_gather.hpp"
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/architecture/replicated.hpp"
#include "tutti/compression/bf16.hpp"
#include "tutti/compression/chain.hpp"
#include "tutti/compression/fp16.hpp"
#include "tutti/compression/momentum_correction.hpp"
#include "tutti/compression/none.hpp"
#include "tutti/compression/select.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/coordination/negotiated.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/fusion/when_ready.hpp"
#include "tutti/optimizer/none.hpp"
#include "tutti/partition/into.hpp"

namespace tutti::test::overflowing {
namespace {

constexpr int steps = 3;

/// Returns gradients in which an element of one rank overflows, a sum of ranks overflows, two
/// infinities cancel, and all other elements are in range.
std::vector<float> gradients_of(int rank) {
  std::vector<float> all(70, 1);
  all[3] = rank == 0 ? 70'000.0f : 0;
  all[20] = 40'000;
  all[33] = rank == 0 ? 1e30f : rank == 1 ? -1e30f : 0;
  all[69] = rank == 2 ? -65'520.0f : 0;  // the least magnitude that rounds to an infinity
  all[68] = rank == 2 ? 65'519.0f : 0;
  return all;
}

/// Returns gradients with as many overflows of bfloat16, whose largest number is close to that of a
/// float.
std::vector<float> large_gradients_of(int rank) {
  constexpr float largest = std::numeric_limits<float>::max();
  std::vector<float> all(70, 1);
  all[3] = rank == 0 ? largest : 0;
  all[20] = 2e38f;
  all[33] = rank == 0 ? largest : rank == 1 ? -largest : 0;
  all[69] = rank == 2 ? -0x1.ffp127f : 0;  // the least magnitude that rounds to an infinity
  all[68] = rank == 2 ? 0x1.fefffep127f : 0;
  return all;
}

struct seen {
  std::vector<std::uint64_t> counted{};  ///< by each rank
  std::vector<std::uint64_t> found{};    ///< in the returned means
  std::string report{};
};

template <class Strategy>
seen overflow(int workers, engine_options<Strategy> first = {}, engine_options<Strategy> then = {},
              std::vector<float> (*given)(int rank) = gradients_of) {
  seen all;
  all.counted.resize(static_cast<std::size_t>(workers));
  all.found.resize(all.counted.size());
  transport::run_ranks(workers + servers_in<Strategy>(first), [&](transport::in_process& world) {
    arena memory(std::vector<arena::declaration>{{"one", 40}, {"two", 30}});
    auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer::none{}, first);
    if (engine.serves()) {
      engine.serve();
      return;
    }
    const auto rank = static_cast<std::size_t>(world.rank());
    for (int step = 0; step < steps; ++step) {
      const auto mine = given(world.rank());
      std::copy(mine.begin(), mine.end(), memory.gradients().begin());
      engine.ready(tensor_id(1));
      engine.ready(tensor_id(0));
      engine.wait();
      for (const float each : memory.gradients()) {
        all.found[rank] += std::isfinite(each) ? 0 : 1;
      }
      EXPECT_EQ(engine.overflowed(), all.found[rank]) << "step " << step;
      if (step == 1) {
        engine.replan(then);
      }
    }
    all.counted[rank] = engine.report().overflowed;
    if (rank == 0) {
      std::ostringstream out;
      out << engine.report();
      all.report = out.str();
    }
  });
  return all;
}

/// Expects at least `least[workers]` elements of the means to be infinite or NaN, whichever ranks
/// add them.
template <class Strategy>
void is_counted(std::array<std::uint64_t, 6> least, engine_options<Strategy> first = {},
                engine_options<Strategy> then = {},
                std::vector<float> (*given)(int rank) = gradients_of) {
  for (int workers = 1; workers <= 5; ++workers) {
    SCOPED_TRACE(workers);
    const seen all = overflow<Strategy>(workers, first, then, given);
    for (std::size_t rank = 0; rank < all.counted.size(); ++rank) {
      EXPECT_EQ(all.counted[rank], all.found[rank]) << "rank " << rank;
      EXPECT_EQ(all.counted[rank], all.counted[0]) << "rank " << rank;
    }
    EXPECT_EQ(all.counted[0], steps * least[static_cast<std::size_t>(workers)]);
    EXPECT_NE(all.report.find(std::to_string(all.counted[0]) + " elements came back as infinity"),
              std::string::npos)
        << all.report;
  }
}

/// On one rank two elements are too large. With two ranks a sum is, too, and an infinity is added
/// to its negative. With three ranks one more element is too large.
constexpr std::array<std::uint64_t, 6> sums{0, 2, 3, 4, 4, 4};
/// Where payloads are added as floats, the sum of two 40,000 is in range, and so is its half.
constexpr std::array<std::uint64_t, 6> sums_of_floats{0, 2, 2, 3, 3, 3};

TEST(Overflow, IsCountedAlikeOnEveryRank) {
  using compression::fp16;
  is_counted<compose<fp16>>(sums);
  is_counted<compose<fp16, architecture::all_reduce<>>>(sums);
  is_counted<compose<fp16, architecture::all_gather>>(sums_of_floats);
  is_counted<compose<fp16, architecture::reduce_scatter_all_gather>>(sums_of_floats);
  is_counted<compose<fp16, architecture::parameter_server<>>>(sums_of_floats);
}

TEST(Overflow, IsCountedOnUnderAnotherPlan) {
  using compression::fp16;
  is_counted<compose<fp16, fusion::up_to, partition::into>>(
      sums, {.fusion = {.bytes = 1}}, {.fusion = {.bytes = 1000}, .partition = {.elements = 7}});
  is_counted<compose<fp16, fusion::when_ready, coordination::negotiated>>(
      sums, {.fusion = {.cycle = 1e-5}}, {.fusion = {.bytes = 100, .cycle = 1e-5}});
}

TEST(Overflow, IsFoundWithinOtherCompressors) {
  using compression::chain;
  using compression::fp16;
  using compression::none;
  using compression::top_k;
  is_counted<compose<compression::momentum_correction<fp16>>>(
      sums, {.compression = {.momentum = 0}}, {.compression = {.momentum = 0}});
  is_counted<compose<compression::select<every_tensor, fp16, none>>>(sums);
  is_counted<compose<chain<top_k, fp16>, architecture::all_gather>>(
      sums_of_floats, {.compression = {.selection = {.density = 1}}},
      {.compression = {.selection = {.density = 1}}});
}

TEST(Overflow, IsCountedNextToTheLargestFloat) {
  using compression::bf16;
  is_counted<compose<bf16>>(sums, {}, {}, large_gradients_of);
  is_counted<compose<bf16, architecture::all_gather>>(sums, {}, {}, large_gradients_of);
  is_counted<compose<bf16, architecture::parameter_server<>>>(sums, {}, {}, large_gradients_of);
}

/// Payloads with a float's range are not checked.
TEST(Overflow, IsNotCountedWhereItCannotBe) {
  const seen all = overflow<compose<>>(2);
  EXPECT_EQ(all.counted, (std::vector<std::uint64_t>{0, 0}));
  EXPECT_EQ(all.report.find("infinity"), std::string::npos);
}

/// As in PyTorch and others: if each rank divides first, the sum is no larger than the largest
/// gradient.
TEST(Overflow, IsAvoidedByDividingFirst) {
  using strategy = compose<compression::fp16, architecture::replicated<architecture::mean::before>>;
  for (int workers = 2; workers <= 5; ++workers) {
    const seen all = overflow<strategy>(workers);
    EXPECT_EQ(all.counted[0], steps * 1u) << "1e30 and its negative";
  }
}

}  // namespace
}  // namespace tutti::test::overflowing
