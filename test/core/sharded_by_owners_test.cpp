// Compressed gradients to their owners and compressed parameters from them, against the recurrence
// in plain loops.
#include "tutti/architecture/sharded_by_owners.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <vector>

#include "support/payload_oracle.hpp"
#include "support/training.hpp"
#include "tutti/compression/block_int8.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/natural.hpp"
#include "tutti/compression/none.hpp"
#include "tutti/compression/push_only.hpp"
#include "tutti/compression/remembering_answers.hpp"
#include "tutti/schedule/split_phase.hpp"

namespace tutti::test {
namespace {

/// Expects the bits of every parameter on every rank, and the bytes that each rank sends.
template <class Compression, class... Others>
void trains_as_defined() {
  using strategy = compose<architecture::sharded_by_owners, Compression, Others...>;
  constexpr int steps = 5;
  for (int workers = 1; workers <= 5; ++workers) {
    const auto wanted = payloads<Compression>(way::sharded, workers, steps);
    const auto real = train_on_threads<strategy>(workers, steps);
    const auto modelled = train_in_simulation<strategy>(workers, steps);
    const auto nothing = train_in_simulation<strategy>(workers, 0);
    for (std::size_t worker = 0; worker < real.parameters.size(); ++worker) {
      EXPECT_EQ(real.parameters[worker], wanted.parameters) << worker << " of " << workers;
      EXPECT_EQ(modelled.parameters[worker], wanted.parameters) << worker << " of " << workers;
      EXPECT_EQ(modelled.bytes[worker] - nothing.bytes[worker], wanted.bytes[worker]);
    }
  }
}

TEST(ShardedByOwners, RemembersWhatItsParametersLost) {
  trains_as_defined<compression::remembering_answers<compression::block_int8>,
                    schedule::split_phase>();
}
TEST(ShardedByOwners, RemembersAtBothEnds) {
  trains_as_defined<compression::error_feedback<compression::block_int8>>();
}
TEST(ShardedByOwners, SendsParametersWholeWhereOnlyGradientsAreRounded) {
  trains_as_defined<compression::push_only<compression::natural>>();
}

/// Sends gradients as floats, and parameters in codes.
struct exact_pushes : compression::none {
  static constexpr bool identity = false;
  static constexpr bool summable = false;
  static constexpr compression::error_feedback<compression::block_int8> relay() { return {}; }
};

/// Where gradients lose nothing, the owners' full parameters are those of plain training. The
/// ranks' parameters differ from them by at most the codes' rounding, after any number of steps.
TEST(ShardedByOwners, ForgetsNoSmallUpdate) {
  using strategy = compose<architecture::sharded_by_owners, exact_pushes>;
  constexpr int steps = 40;
  const sgd_values small{.learning_rate = 1e-4f, .momentum = 0, .weight_decay = 0};
  const auto wanted = trained(3, steps, small);
  const auto real = train_on_threads<strategy>(3, steps, {}, optimizer_of(small));
  const auto before = descended(0, small, [](int, std::size_t) { return 0.0f; });
  constexpr double scale = 2.5 / 127;  // because initial parameters are below 17 / 7
  double moved = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_NEAR(real.parameters[0][i], wanted[i], scale / 2 * 1.001) << i;
    moved += std::abs(double{wanted[i]} - double{before[i]});
  }
  EXPECT_GT(moved, 0);
}

}  // namespace
}  // namespace tutti::test
