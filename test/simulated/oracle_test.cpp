// Strategies on the virtual clock, and over the same network in real time.
#include <cstddef>
#include <gtest/gtest.h>

#include "support/low_rank_oracle.hpp"
#include "support/strategy_laws.hpp"
#include "support/training_worlds.hpp"
#include "tutti/strategies/power_sgd.hpp"

namespace tutti::test {

static_assert(strategies_in<dense_strategies_on<on_the_virtual_clock>> == 13);
INSTANTIATE_TYPED_TEST_SUITE_P(OnTheVirtualClock, StrategyLaw,
                               dense_strategies_on<on_the_virtual_clock>);

static_assert(strategies_in<averaging_strategies_on<on_the_virtual_clock>> == 14);
INSTANTIATE_TYPED_TEST_SUITE_P(AveragingOnTheVirtualClock, StrategyLaw,
                               averaging_strategies_on<on_the_virtual_clock>);

static_assert(strategies_in<a_few_dense_strategies_on<on_shaped_threads>> == 4);
INSTANTIATE_TYPED_TEST_SUITE_P(OnShapedThreads, StrategyLaw,
                               a_few_dense_strategies_on<on_shaped_threads>);
INSTANTIATE_TYPED_TEST_SUITE_P(AveragingOnShapedThreads, StrategyLaw,
                               averaging_strategies_on<on_shaped_threads>);
static_assert(strategies_in<gathering_strategies_on<on_shaped_threads>> == 2);
INSTANTIATE_TYPED_TEST_SUITE_P(GatheringOnShapedThreads, StrategyLaw,
                               gathering_strategies_on<on_shaped_threads>);
using codes_on_shaped_threads =
    strategy_on<listed::coded<way::gathered, strategies::QSGD>, on_shaped_threads>;
INSTANTIATE_TYPED_TEST_SUITE_P(CodesOnShapedThreads, StrategyLaw, codes_on_shaped_threads);

TEST(RoundsOnShapedThreads, TrainAsTheRecurrence) {
  constexpr int steps = 6;
  for (int workers = 1; workers <= 5; ++workers) {
    outcome result(workers);
    on_shaped_threads::run(workers, [&](on_shaped_threads::transport& world) {
      return rank_on_a_clock<strategies::PowerSGD>(world, steps, {}, result, shaped_declarations());
    });
    const auto wanted = trained_in_low_rank(workers, steps, 2, 1);
    for (const auto& parameters : result.parameters) {
      ASSERT_EQ(parameters.size(), wanted.parameters.size());
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        ASSERT_NEAR(parameters[i], wanted.parameters[i], wanted.bound) << i << " of " << workers;
      }
    }
  }
}

}  // namespace tutti::test
