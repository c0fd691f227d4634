// Strategies on the virtual clock, and over the same network in real time.
#include "support/strategy_laws.hpp"
#include "support/training_worlds.hpp"

namespace tutti::test {

static_assert(strategies_in<dense_strategies_on<on_the_virtual_clock>> == 13);
INSTANTIATE_TYPED_TEST_SUITE_P(OnTheVirtualClock, StrategyLaw,
                               dense_strategies_on<on_the_virtual_clock>);

static_assert(strategies_in<averaging_strategies_on<on_the_virtual_clock>> == 8);
INSTANTIATE_TYPED_TEST_SUITE_P(AveragingOnTheVirtualClock, StrategyLaw,
                               averaging_strategies_on<on_the_virtual_clock>);

static_assert(strategies_in<a_few_dense_strategies_on<on_shaped_threads>> == 4);
INSTANTIATE_TYPED_TEST_SUITE_P(OnShapedThreads, StrategyLaw,
                               a_few_dense_strategies_on<on_shaped_threads>);
INSTANTIATE_TYPED_TEST_SUITE_P(AveragingOnShapedThreads, StrategyLaw,
                               averaging_strategies_on<on_shaped_threads>);

}  // namespace tutti::test
