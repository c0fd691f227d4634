// The other half of the covering array, on the virtual clock: the same bits.
#include "support/covering.hpp"

#include "support/strategy_laws.hpp"
#include "support/training_worlds.hpp"

namespace tutti::test {

static_assert(strategies_in<covering::rows_on<on_the_virtual_clock>> == 8);
INSTANTIATE_TYPED_TEST_SUITE_P(Covering, StrategyLaw, covering::rows_on<on_the_virtual_clock>);

}  // namespace tutti::test
