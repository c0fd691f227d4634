// Strategies on the virtual clock.
#include "support/strategy_laws.hpp"
#include "support/training_worlds.hpp"

namespace tutti::test {

static_assert(strategies_in<dense_strategies_on<on_the_virtual_clock>> == 11);
INSTANTIATE_TYPED_TEST_SUITE_P(OnTheVirtualClock, StrategyLaw,
                               dense_strategies_on<on_the_virtual_clock>);

}  // namespace tutti::test
