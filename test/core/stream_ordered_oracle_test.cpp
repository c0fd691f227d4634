// Runs the strategy laws where messages have no tags and move in the order of a stream.
#include "support/strategy_laws.hpp"
#include "support/training_worlds.hpp"
#include "tutti/collective/ring.hpp"

namespace tutti::test {

// All but those whose servers receive from any rank.
static_assert(strategies_in<dense_strategies_on<in_stream_order>> == 11);
INSTANTIATE_TYPED_TEST_SUITE_P(InStreamOrder, StrategyLaw, dense_strategies_on<in_stream_order>);

static_assert(strategies_in<averaging_strategies_on<in_stream_order>> == 12);
INSTANTIATE_TYPED_TEST_SUITE_P(AveragingInStreamOrder, StrategyLaw,
                               averaging_strategies_on<in_stream_order>);

/// Named explicitly, because no strategy chooses a ring where the library has a sum of its own.
struct ring : listed::with_defaults<compose<architecture::all_reduce<collective::ring>>> {
  static std::vector<options> variants() { return {{}, listed::moved_by_a_thread(options())}; }
};
using rings = testing::Types<strategy_on<ring, in_stream_order>>;
INSTANTIATE_TYPED_TEST_SUITE_P(RingInStreamOrder, StrategyLaw, rings);

}  // namespace tutti::test
