// Lossy strategies where memory belongs to a stream of each rank, and where messages move in the
// order of streams.
#include <gtest/gtest.h>

#include "support/device_training.hpp"
#include "support/strategy_laws.hpp"
#include "support/training_worlds.hpp"
#include "tutti/compression/none.hpp"
#include "tutti/compression/power_sgd.hpp"
#include "tutti/compression/select.hpp"

namespace tutti::test {

static_assert(strategies_in<lossy_strategies_on<on_host_streams>> == 6);
INSTANTIATE_TYPED_TEST_SUITE_P(LossyOnHostStreams, StrategyLaw,
                               lossy_strategies_on<on_host_streams>);

// All but majority votes, whose servers receive from any rank.
static_assert(strategies_in<lossy_strategies_on<in_stream_order>> == 5);
INSTANTIATE_TYPED_TEST_SUITE_P(LossyInStreamOrder, StrategyLaw,
                               lossy_strategies_on<in_stream_order>);

// A stream must know lengths and senders. Three of the codes have fixed lengths; in the order of
// streams, a server cannot receive from any rank.
static_assert(strategies_in<coded_strategies_on<on_host_streams>> == 3);
INSTANTIATE_TYPED_TEST_SUITE_P(CodedOnHostStreams, StrategyLaw,
                               coded_strategies_on<on_host_streams>);
static_assert(strategies_in<coded_strategies_on<in_stream_order>> == 2);
INSTANTIATE_TYPED_TEST_SUITE_P(CodedInStreamOrder, StrategyLaw,
                               coded_strategies_on<in_stream_order>);

/// PowerSGD gives the same bits wherever its matrices are. Its recurrence in double is in
/// core/rounds_test.cpp.
TEST(Factors, AreTheSameBitsOnStreams) {
  using strategy = compose<compression::select<matrices, compression::power_sgd, compression::none>,
                           architecture::all_reduce<collective::canonical>>;
  const engine_options<strategy> options{.compression = {.chosen = {.rank = 3}}};
  for (int ranks = 1; ranks <= 5; ++ranks) {
    const auto expected = train_scattered<strategy, transport::in_process>(ranks, options);
    EXPECT_FALSE(expected.empty());
    EXPECT_EQ((train_scattered<strategy, on_host_streams::transport>(ranks, options)), expected)
        << ranks << " ranks";
    run_streamed(ranks, [&](streamed& world) {
      EXPECT_EQ(train_one_scattered<strategy>(world, options), expected) << ranks << " ranks";
    });
  }
}

}  // namespace tutti::test
