// Runs the strategy laws between threads.
#include "support/strategy_laws.hpp"
#include "support/training_worlds.hpp"

namespace tutti::test {

static_assert(strategies_in<dense_strategies_on<on_threads>> == 13);
INSTANTIATE_TYPED_TEST_SUITE_P(OnThreads, StrategyLaw, dense_strategies_on<on_threads>);
using halves_on_threads = strategy_on<listed::in_shards_of_halves, on_threads>;
INSTANTIATE_TYPED_TEST_SUITE_P(HalvesOnThreads, StrategyLaw, halves_on_threads);

}  // namespace tutti::test
