// Tests of adaptive summation: its laws, and its published recurrence in double precision, tensor
// by tensor.
#include "tutti/architecture/adasum.hpp"

#include <cmath>
#include <cstddef>
#include <gtest/gtest.h>
#include <span>
#include <vector>

#include "support/adaptive_sum_oracle.hpp"
#include "support/training.hpp"
#include "tutti/fusion/up_to.hpp"

namespace tutti::test {
namespace {

using strategy = compose<architecture::adasum<>, fusion::up_to>;

/// For each tensor a vector of each rank: [tensor][rank][element].
using vectors = std::vector<std::vector<std::vector<float>>>;

/// Returns what every rank holds afterwards, after a check that it is equal to the last bit:
/// [tensor][element]. Tensors are fused up to `bytes`.
std::vector<std::vector<float>> added(const vectors& given, std::size_t bytes) {
  const std::size_t ranks = given[0].size();
  std::vector<arena::declaration> forward;
  for (const auto& each : given) {
    forward.push_back({"tensor" + std::to_string(forward.size()), each[0].size()});
  }
  std::vector<std::vector<std::vector<float>>> held(ranks);
  transport::run_ranks(static_cast<int>(ranks), [&](transport::in_process& world) {
    arena memory(forward);
    auto engine = make_engine<strategy>(world, memory.tensors(), optimizer::none(),
                                        {.fusion = {.bytes = bytes}, .run = {.deadline = 20}});
    const auto rank = static_cast<std::size_t>(world.rank());
    for (std::size_t id = given.size(); id-- > 0;) {
      std::ranges::copy(given[id][rank], memory.tensors()[id].gradient.begin());
      engine.ready(tensor_id(id));
    }
    engine.wait();
    for (const tensor& each : memory.tensors()) {
      held[rank].emplace_back(each.gradient.begin(), each.gradient.end());
    }
  });
  for (std::size_t rank = 1; rank < ranks; ++rank) {
    EXPECT_EQ(held[rank], held[0]) << "rank " << rank << " of " << ranks;
  }
  return held[0];
}

/// Sizes of fusion that leave each tensor alone, fuse some of them, and fuse all of them.
const std::vector<std::size_t> fusions{1, 3000, 100'000'000};

TEST(Adasum, IsItsRecurrenceOnAnyNumberOfRanks) {
  for (const std::size_t ranks : {1u, 2u, 3u, 4u, 5u, 8u}) {
    vectors given;
    std::vector<std::vector<double>> expected;
    std::size_t element = 0;
    for (const std::size_t n : tensor_sizes()) {
      std::vector<std::vector<float>> of_tensor(ranks, std::vector<float>(n));
      for (std::size_t i = 0; i < n; ++i, ++element) {
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          of_tensor[rank][i] = gradient(static_cast<int>(rank), 0, element) +
                               gradient(99, 0, element);  // the part that all ranks share
        }
      }
      std::vector<std::vector<double>> doubles;
      for (const auto& each : of_tensor) {
        doubles.emplace_back(each.begin(), each.end());
      }
      expected.push_back(adaptive_sum(doubles));
      given.push_back(of_tensor);
    }
    for (const std::size_t bytes : fusions) {
      const auto got = added(given, bytes);
      for (std::size_t id = 0; id < expected.size(); ++id) {
        for (std::size_t i = 0; i < expected[id].size(); ++i) {
          ASSERT_NEAR(got[id][i], expected[id][i], 4e-7 * (16 + std::abs(expected[id][i])))
              << ranks << " ranks, tensor " << id << ", element " << i;
        }
      }
    }
  }
}

/// A tensor has weights of its own, whichever tensors it is fused with. The first is orthogonal
/// across ranks, the second equal on all ranks, the third zero on all ranks but one, the fourth
/// zero on all.
TEST(Adasum, OrthogonalIsTheSumParallelTheMeanZeroTheOther) {
  for (const std::size_t ranks : {1u, 2u, 3u, 4u, 5u, 8u}) {
    const std::size_t n = 1000 * ranks + 1;
    vectors given(4, std::vector<std::vector<float>>(ranks, std::vector<float>(n)));
    std::vector<std::vector<float>> expected(4, std::vector<float>(n));
    for (std::size_t i = 0; i < n; ++i) {
      const auto value = static_cast<float>(1 + i % 61);
      given[0][i % ranks][i] = value;
      given[2][ranks - 1][i] = value;
      expected[0][i] = expected[1][i] = expected[2][i] = value;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        given[1][rank][i] = value;
      }
    }
    for (const std::size_t bytes : fusions) {
      EXPECT_EQ(added(given, bytes), expected) << ranks << " ranks";
    }
  }
}

/// Parallel vectors of different lengths: the result of two ranks is (a + b) / 2.
TEST(Adasum, ParallelOfDifferentLengthsIsTheMean) {
  const vectors given{{{2, 4, 6}, {6, 12, 18}}, {{1}, {-3}}};
  EXPECT_EQ(added(given, 1), (std::vector<std::vector<float>>{{4, 8, 12}, {-1}}));
}

/// The square of even the least float is far above what counts as zero, so the least floats have a
/// mean as all others do.
TEST(Adasum, TheLeastFloatsAreNotZero) {
  const float least = std::ldexp(1.0f, -149);
  EXPECT_EQ(added({{{2 * least}, {4 * least}}}, 1)[0][0], 3 * least);
}

}  // namespace
}  // namespace tutti::test
